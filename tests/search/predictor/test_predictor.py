from dataclasses import replace
from math import log
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.strategies import problems
from tests.search.targets import NARROW, WIDE
from tilewise.kernels.problem import parse_problem
from tilewise.search.errors import PredictorError
from tilewise.search.model.analytical import AnalyticalModel
from tilewise.search.model.prior import prior_points
from tilewise.search.predictor import training
from tilewise.search.predictor.candidates import MOST, candidates
from tilewise.search.predictor.predictor import SHIPPED, Predictor, in_use, own_file, shipped
from tilewise.search.predictor.training import TimedSpace
from tilewise.search.predictor.trees import Trees
from tilewise.search.records import Solved
from tilewise.search.space.space import Space

TEXTS = (
    "matmul:m=512,n=384,k=256,dtype=f32",
    "matmul:m=96,n=1024,k=768,dtype=f32",
    "conv2d:n=1,h=30,w=30,ci=64,co=64,kh=3,kw=3,dtype=f32",
)


def test_trees_learn_a_step_and_a_product():
    random = np.random.default_rng(0)
    rows = random.random((2000, 5))
    values = (rows[:, 1] > 0.3) + rows[:, 2] * rows[:, 3]
    trees = Trees.fit(rows, values, np.ones(2000))
    new = random.random((500, 5))
    errors = trees.predict(new) - ((new[:, 1] > 0.3) + new[:, 2] * new[:, 3])
    assert np.sqrt(np.mean(errors**2)) < 0.1


@settings(max_examples=40, deadline=None, derandomize=True)
@given(problems, st.sampled_from([WIDE, NARROW]))
def test_any_problem_has_a_bounded_number_of_different_candidates(problem, target) -> None:
    space = Space(problem, target)
    some = candidates(AnalyticalModel.shipped(space)).some
    assert 0 < len(some) <= MOST
    assert len({space.key(one.point) for one in some}) == len(some)
    assert all(space.holds(one.point) for one in some)


@pytest.mark.parametrize("text", TEXTS)
def test_a_turn_finds_about_what_descents_find(text):
    model = AnalyticalModel.shipped(Space(parse_problem(text), WIDE))
    best = min(one.log_cycles for one in candidates(model).some)
    assert best < model.log_time(prior_points(model, 1)[0]) + log(1.1)


def test_predictions_are_legal_and_in_order():
    target = next(iter(shipped().targets.values()))
    wanted = [parse_problem(text) for text in (*TEXTS, *TEXTS[::-1])]
    found = shipped().predict(wanted, target)
    assert [one and one.problem for one in found] == wanted
    for one in found:
        assert one is not None and one.time_us and one.interval_us
        assert Space(one.problem, target).why_illegal(one.schedule) is None
        assert one.interval_us[0] < one.time_us < one.interval_us[1]
    alone = shipped().predict(wanted[:1], target)
    assert alone == found[:1], "other problems of a look-up change nothing"


def test_the_winner_of_a_near_problem_is_adapted():
    model = AnalyticalModel.shipped(Space(parse_problem(TEXTS[0]), WIDE))
    unlikely = prior_points(model, 12)[-1]
    solved = [Solved(model.space.problem, WIDE.canonical, ((unlikely, 100.0),))]
    wanted = [parse_problem(text.replace("m=512", "m=480")) for text in TEXTS]
    wanted += [parse_problem(f"matmul:m={m},n=384,k=256,dtype=bf16") for m in (480, 16384)]
    near, *others = shipped().predict(wanted, WIDE, solved)
    assert near is not None and near.point["tile"] == unlikely["tile"]
    assert near.time_us == pytest.approx(100 * 480 / 512, rel=0.15)
    assert others == shipped().predict(wanted[1:], WIDE), "of another dtype, or too far away"


def test_threads_that_no_trial_had_have_no_expected_time():
    target = next(iter(shipped().targets.values())).with_threads(2)
    (found,) = shipped().predict([parse_problem(TEXTS[0])], target)
    assert found is not None and found.time_us is None and found.interval_us is None


def test_targets_without_known_caches_have_no_predictions():
    assert shipped().target("cpu:nowhere,threads=1") is None
    assert shipped().target("iree:znver5") is None
    assert shipped().target("host") is not None


def timed(text: str, points: int = 60) -> TimedSpace:
    """A space whose times are the model's, but twice as long where B is packed."""
    model = AnalyticalModel.shipped(Space(parse_problem(text), WIDE))
    known = [(p, np.exp(model.log_time(p)) * (2 if p["pack_b"] else 1))
             for p in prior_points(model, points)]  # fmt: skip
    return TimedSpace(text, model.space.problem, WIDE, known)


@pytest.mark.full
def test_what_trials_of_other_problems_teach_holds_for_a_new_one(tmp_path: Path):
    spaces = training.usable([timed(f"matmul:m={m},n=512,k=640,dtype=f32") for m in (96, 256, 384)])
    evaluated = training.evaluate(spaces)
    assert min(one.problem.ranked for one in evaluated) > 0.9
    assert all(one.processor is None for one in evaluated), "there is no other processor"
    predictor = training.train(spaces, evaluated)
    predictor.save(tmp_path / "made.npz")
    kept = Predictor.load(tmp_path / "made.npz")
    wanted = [parse_problem("matmul:m=200,n=512,k=640,dtype=f32")]
    (found,) = kept.predict(wanted, WIDE)
    assert found is not None and not found.point["pack_b"]


@pytest.mark.full
def test_a_space_is_evaluated_without_its_own_problem(monkeypatch):
    spaces = training.usable([timed(f"matmul:m={m},n=512,k=640,dtype=f32") for m in (96, 256)])
    fitted = Mock(wraps=training._fitted)
    monkeypatch.setattr(training, "_fitted", fitted)
    training.evaluate(spaces)
    seen = [{space.problem.canonical for space in call.args[0]} for call in fitted.call_args_list]
    assert sorted(map(sorted, seen)) == sorted([space.name] for space in spaces)


def test_a_predictor_trained_here_replaces_the_shipped_one(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path))
    assert in_use() is shipped()
    replace(shipped(), levels={"cpu:here,threads=1": 0.5}).save(own_file())
    assert in_use().levels == {"cpu:here,threads=1": 0.5}
    own_file().write_bytes(b"of another version")
    assert in_use() is shipped()


def test_one_problem_cannot_teach():
    with pytest.raises(PredictorError, match="at least 2 problems"):
        training.usable([timed(TEXTS[0])])


def test_files_that_are_no_predictor_are_refused(tmp_path: Path):
    whole = SHIPPED.read_bytes()
    assert len(whole) < 100_000, "the shipped one is small"
    for content in (None, b"no", b"", whole[:-99], whole[:2000] + bytes(99) + whole[2099:]):
        if content is not None:
            (tmp_path / "a.npz").write_bytes(content)
        with pytest.raises(PredictorError, match="no predictor can be read"):
            Predictor.load(tmp_path / "a.npz")
