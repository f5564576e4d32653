"""What `accuracy=standard` allows: rms errors beside the direct method's."""

from dataclasses import replace

import numpy as np
import pytest

from tilewise.kernels.oracle.accuracy import KINDS, MOST_TIMES, operands_of_kind
from tilewise.kernels.problem import Conv2d, parse_problem
from tilewise.kernels.schedule import Pack, Register, Schedule, Tile, Winograd
from tilewise.kernels.target import detect
from tilewise.search.runner.child.accuracy import check_accuracy, errors_of
from tilewise.search.runner.child.session import Session
from tilewise.search.runner.child.trial import trial
from tilewise.search.runner.protocol import CandidateFailureError
from tilewise.search.space.algorithms import LEAST_CHANNELS

HOST = detect()
COLS = 2 * HOST.lanes("f32")


def convolution(ci: int) -> Conv2d:
    problem = parse_problem(f"conv2d:n=1,h=14,w=14,ci={ci},co=40,kh=3,kw=3,pad=1,dtype=f32")
    assert isinstance(problem, Conv2d)
    return problem


def filtered(output: int, rows: int = 4) -> Schedule:
    return Schedule((Winograd(output), Pack("B"), Tile("t", rows), Pack("A"), Register(rows, COLS)))


OFFERED = [
    (*taps, output, least)
    for sides, outputs in LEAST_CHANNELS.items()
    for taps in sorted({sides, sides[::-1]})
    for output, least in outputs.items()
]


@pytest.mark.full
@pytest.mark.parametrize(("kh", "kw", "output", "least"), OFFERED)
def test_what_the_space_offers_is_accurate_enough(
    kh: int, kw: int, output: int, least: int
) -> None:
    for ci in (least, 4 * least):
        problem = replace(convolution(ci), kh=kh, kw=kw)
        for rows in (5, 12):
            errors = check_accuracy(problem, filtered(output, rows), HOST)
            assert all(0 < times <= MOST_TIMES for times in errors.values())


@pytest.mark.parametrize(("kh", "kw", "output", "ci"), [(3, 3, 4, 9), (5, 1, 4, 9), (5, 5, 3, 20)])
def test_a_draw_of_few_large_channels_refuses_nothing(
    kh: int, kw: int, output: int, ci: int
) -> None:
    """The first draw of scaled operands alone is beyond the limit with so many channels."""
    problem = replace(convolution(ci), kh=kh, kw=kw)
    errors = check_accuracy(problem, filtered(output), HOST)
    assert max(errors, key=lambda kind: errors[kind]) in ("relu", "scaled")


def test_a_method_that_is_off_is_found_along_either_axis() -> None:
    """Of a filter that lies as of one that stands: the strip has whole tiles of both."""
    for kh, kw in ((1, 5), (5, 1)):
        problem = replace(convolution(32), kh=kh, kw=kw)
        assert max(errors_of(problem, filtered(4), HOST).values()) < MOST_TIMES
        shallow = replace(problem, ci=1)
        assert max(errors_of(shallow, filtered(4), HOST).values()) > MOST_TIMES


def test_large_tiles_of_a_single_channel_are_wrong() -> None:
    """The direct method adds nine products; the transforms round as for any depth."""
    with pytest.raises(CandidateFailureError, match="times the direct method's") as failed:
        check_accuracy(convolution(1), filtered(4), HOST)
    assert failed.value.kind == "wrong"
    assert check_accuracy(convolution(1), filtered(2), HOST)


def test_operands_differ_by_kind_and_not_from_time_to_time() -> None:
    problem = Conv2d(n=1, h=6, w=10, ci=8, co=16, kh=3, kw=3, dtype="f32")
    made = {kind: operands_of_kind(problem, kind) for kind in KINDS}
    assert (made["uniform"]["A"] >= 0).all() and (made["uniform"]["B"] >= 0).all()
    assert (made["relu"]["A"] >= 0).all() and (made["relu"]["B"] < 0).any()
    assert (made["gaussian"]["A"] < 0).any()
    sizes = np.abs(made["scaled"]["A"]).max(axis=(0, 3))
    assert sizes.max() > 1000 * sizes.min()
    for kind in KINDS:
        assert np.array_equal(made[kind]["A"], operands_of_kind(problem, kind)["A"])


def test_a_trial_tells_the_errors_and_a_wrong_one_fails() -> None:
    session = Session(convolution(16).canonical, HOST.canonical, seed=0)
    reply = trial(session, list(filtered(4).to_json()), None)
    assert set(reply.accuracy) == set(KINDS)
    assert reply.max_error <= reply.tolerance
    direct = Schedule((Tile("n", 1), Pack("A"), Register(4, COLS)))
    assert trial(session, list(direct.to_json()), None).accuracy == {}
    shallow = Session(convolution(1).canonical, HOST.canonical, seed=0)
    with pytest.raises(CandidateFailureError, match="rms error"):
        trial(shallow, list(filtered(4).to_json()), None)


def test_the_check_of_a_filtered_result_finds_a_wrong_one() -> None:
    session = Session(convolution(16).canonical, HOST.canonical, seed=0)
    steps = list(filtered(4).to_json())
    call = session.call(steps)

    def off_by_a_little(repeat: int) -> None:
        call(repeat)
        session.operands["C"][0, 3, 4, 5] += 0.1

    session.check(call, steps)
    with pytest.raises(CandidateFailureError, match="deviation"):
        session.check(off_by_a_little, steps)
