"""Results as text, plots and predictions."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.service import fakes
from tests.service.archive.stores import RANGE
from tests.tilewise.conftest import PROBLEM, Cli
from tilewise import plots
from tilewise.cli import render
from tilewise.client import Client, Result
from tilewise.errors import MissingError
from tilewise.schema.base import read

Json = dict[str, Any]
BEST = fakes.schedule(3)


def found(best: Json | None = None, proof: Json | None = None, **parts: Any) -> Json:
    """A result as the service shows it."""
    return {
        "problem": "matmul:m=4,n=4,k=4,dtype=f32", "key": "k", "target": "cpu:x,threads=1",
        "cache": "hot", "toolchain": "tools", "elapsed_s": 2.5, "space": {"schedules": 77},
        "trials": {"asked": 9, "timed": 4, "pruned": 3, "failed": 2},
        "best": {
            "hash": BEST.hash, "steps": BEST.to_json(), "gflops": 60.0, "interval": [58.0, 63.0],
            "time_us": 12.5, "peak_fraction": 0.75, "scratch_bytes": {"A": 2048, "B": 65536},
            "measured": {
                "samples": 21, "placements": 6, "rejected": 2, "disturbed": 1, "cold": None
            },
        } | (best or {}),
        "peers": {"openblas": {"gflops": 40.0, "interval": [39.0, 41.0], "time_us": 18.0}},
        "proof": {
            "applied": True, "executed": True, "max_error": 1.5e-6, "tolerance": 4e-5,
            "gflops": 33.0, "interval": [32.0, 34.0], "time_us": 22.0, "mlir": "iree 3",
            "failure": None, "message": "", "hash": BEST.hash,
        } | (proof or {}),
        "complete": True, "stale": False,
    } | parts  # fmt: skip


def line(text: str, label: str) -> str:
    (one,) = (one for one in text.splitlines() if one.startswith(f"{label} "))
    return one.removeprefix(label).strip()


def test_speeds_and_sizes_have_their_units() -> None:
    text = render.result_text(found())
    assert line(text, "speed") == "60.0 GFLOP/s, 95% interval 58.0 to 63.0; 12.5 us"
    assert line(text, "peak") == "75.0% of the 80.0 GFLOP/s measured in the same run"
    assert line(text, "scratch") == "panels of A 2 KiB, of B 64 KiB"
    assert line(text, "openblas") == "40.0 GFLOP/s in the same rounds; ours is 1.50x"
    assert line(text, "measured").endswith("; discarded 1 slow rounds")
    for time_us, said in ((0.0136, "13.6 ns"), (74.06, "74.1 us"), (13595.1, "13.60 ms")):
        text = render.result_text(found(best={"time_us": time_us}))
        assert line(text, "speed").endswith(f"; {said}")


def test_a_method_that_is_not_direct_tells_its_rms_errors_and_explains_its_share() -> None:
    plain = found()["best"]["measured"]
    text = render.result_text(found(best={"measured": plain | {"accuracy": None}}))
    assert "\naccuracy" not in text
    errors = {"gaussian": 1.9, "relu": 2.125}
    text = render.result_text(found(best={"measured": plain | {"accuracy": errors}}))
    said = "rms error 1.90 (gaussian), 2.12 (relu) times the direct method's"
    assert line(text, "accuracy") == said
    steps = [{"step": "strassen", "levels": 1}, *BEST.to_json()]
    said = line(render.result_text(found(best={"steps": steps, "peak_fraction": 1.01})), "peak")
    assert said.endswith("; strassen does fewer multiplications than GFLOP/s counts")


def test_what_a_result_is_not_is_said() -> None:
    text = render.result_text(found())
    counts = "4 timed, 3 pruned, 2 failed of 9 requested, in 2.5 s; at most 77 schedules"
    assert (line(text, "toolchain"), line(text, "trials")) == ("tools", counts)
    text = render.result_text(found(stale=True, complete=False))
    assert line(text, "toolchain") == "tools  (stale)"
    assert line(text, "trials") == f"{counts} (cut short)"
    text = render.result_text(found(best={"quality": "noisy"}))
    assert line(text, "quality") == "noisy machine: measure again with --again"
    for quality in ({"quality": "good"}, {}):  # an older service says nothing of it
        assert "noisy" not in render.result_text(found(best=quality))


@pytest.mark.parametrize(("proof", "threads", "says"), [
    ({"by": "far-away"}, 1, "reported by the worker on far-away)"),
    ({}, 1, "proven: applied, run, error 1.5e-06 within 4e-05, 33.0 GFLOP/s (iree 3)"),
    ({}, 2, "33.0 GFLOP/s on one thread (iree 3)"),
    ({"hash": "0123"}, 1, "proven of schedule 0123: applied"),
    ({"failure": "wrong", "message": "of 3"}, 1, "not proven, so not served (wrong: of 3)"),
])  # fmt: skip
def test_a_script_is_proven_or_not(proof: Json, threads: int, says: str) -> None:
    text = render.result_text(found(proof=proof, target=f"cpu:x,threads={threads}"))
    assert says in line(text, "script")
    assert line(render.result_text(found() | {"proof": None}), "script") == "none"


def test_what_the_last_measurement_changed_is_said() -> None:
    past = {
        "state": "not_kept", "hash": "0123", "gflops": 47.6, "interval": [38.6, 144.3],
        "quality": "noisy", "job": 7,
    }  # fmt: skip
    said = line(render.result_text(found(previous=past)), "history")
    assert said == "job 7 measured 47.6 GFLOP/s [38.6, 144.3] (noisy), schedule 0123: not kept"
    past |= {"state": "superseded", "quality": "good"}
    said = line(render.result_text(found(previous=past)), "history")
    assert said == "replaced 47.6 GFLOP/s [38.6, 144.3], schedule 0123, of job 7"


def test_a_script_of_another_schedule_has_the_reason() -> None:
    proof = {"hash": "0123", "reason": "matmul:m=4,n=4,k=4,dtype=f32: it has no script"}
    text = render.result_text(found(proof=proof))
    assert f"          the best schedule {BEST.hash} has no script: it has no script\n" in text
    text = render.result_text(found(proof={"hash": "0123"}))
    assert "          it is the fastest script that was proven\n" in text
    assert "fastest script" not in render.result_text(found())


SIGNS = {"svg": b"<svg", "png": b"\x89PNG", "html": b"<!doctype html"}


@pytest.mark.full
@pytest.mark.parametrize("kind", ["convergence", "nest"])
@pytest.mark.parametrize("ending", SIGNS)
def test_the_name_of_a_file_says_its_kind(cli, tuned, tmp_path, kind: str, ending: str) -> None:
    file = tmp_path / f"plot.{ending.upper()}"
    assert cli("plot", PROBLEM, "--kind", kind, "-o", str(file), "--theme", "dark").code == 0
    assert file.read_bytes().lower().startswith(SIGNS[ending].lower())


@pytest.mark.parametrize(("arguments", "code", "said"), [
    ((PROBLEM, "-o", "plot.pdf"), 2, "ends in none of .svg, .png, .html"),
    ((PROBLEM, "-o", "absent/plot.svg"), 2, "there is no folder"),
    (("matmul:m=8,n=8,k=8,dtype=f32", "-o", "plot.svg"), 3, "no trials"),
    (("matmul:m=0,n=8,k=8,dtype=f32", "-o", "plot.svg"), 2, "m=0"),
    (("99", "-o", "plot.svg"), 3, "there is no job 99"),
    (("1", "--cache", "cold", "-o", "plot.svg"), 2, "--cache is for problems; a job has one"),
    (("0", "-o", "plot.svg"), 2, "job 0 is not from 1 to"),
    (("9" * 40, "-o", "plot.svg"), 2, "is not from 1 to"),
    ((PROBLEM, "--cache", "cold", "-o", "plot.svg"), 3, "no cold trials"),
])  # fmt: skip
def test_what_cannot_be_drawn_is_one_line(
    cli: Cli, tuned: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...], code: int, said: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert said in cli("plot", *arguments).error(code)
    assert not list(tmp_path.glob("plot.*"))


def test_a_range_is_drawn_over_its_sizes(cli: Cli, ranged: str, tmp_path: Path) -> None:
    file = tmp_path / "plot.svg"
    for problem, kind in ((PROBLEM, "convergence"), (RANGE, "sizes")):
        ran = cli("plot", problem, "-o", str(file), "--json")
        assert json.loads(ran.out) == {"file": str(file), "kind": kind}
    for text in (RANGE, "variant 0", "variant 1", "fastest of each"):
        assert text in file.read_text()
    for problem, kind in ((RANGE, "nest"), (PROBLEM, "sizes")):
        ran = cli("plot", problem, "--kind", kind, "-o", str(file))
        said = f"--kind {kind} does not draw {problem}; --kind sizes draws ranges\n"
        assert (ran.code, ran.err) == (2, f"tilewise: {said}")


def test_searches_and_results_show_themselves_in_a_notebook(cli, served_as_stored, tuned) -> None:
    trials = cli("trials", PROBLEM, "--format", "json").json
    shown = plots.convergence(trials)._repr_mimebundle_()
    assert shown[plots.VEGA_LITE_MIME]["title"]["text"] == PROBLEM
    assert shown["image/svg+xml"].startswith("<svg")
    with pytest.raises(MissingError):
        plots.convergence([])
    with Client(served_as_stored) as client:
        result = client.schedule(PROBLEM)
    card = result._repr_html_()
    for part in (PROBLEM, f"{result.best.gflops:.1f} GFLOP/s", "script", "<svg", "micro-kernel"):
        assert part in card
    hostile = read(Result, {**result.document, "target": "<script>alert(1)</script>"})
    assert "<script" not in hostile._repr_html_()
    newer = {**result.document["best"], "steps": [{"step": "of a newer version"}]}
    assert "<svg" not in read(Result, {**result.document, "best": newer})._repr_html_()


SPACES = Path(__file__).parents[2] / "benchmarks" / "data" / "spaces"
SMALL = [str(SPACES / f"{name}.json.gz") for name in ("planes-f32", "unseen-f32")]
ABSENT = "matmul:m=200,n=300,k=400,dtype=f32"


def test_an_unseen_problem_has_a_predicted_schedule(cli: Cli, tuned: str) -> None:
    stored, predicted = (
        cli("show", PROBLEM, "--db", tuned, *more) for more in ((), ("--predict",))
    )
    assert stored.code == 0 and stored == predicted
    assert cli("show", ABSENT, "--db", tuned, "--predict", "--cache", "cold").code == 3
    ran = cli("show", ABSENT, "--db", tuned, "--predict")
    assert ran.code == 0 and "predicted: neither timed nor proven" in ran.out
    found = cli("show", ABSENT, "--db", tuned, "--predict", "--json").json
    assert found["best"]["grade"] == "predicted" and found["proof"] is None
    assert cli("show", ABSENT, "--db", tuned).code == 3, "nothing was stored"
    ran = cli("show", ABSENT, "--db", tuned, "--predict", "--target", "cpu:znver1,threads=1")
    assert ran.code == 3 and "none can be predicted for cpu:znver1" in ran.err


@pytest.mark.full
def test_spaces_are_evaluated_and_train_a_predictor(cli: Cli, tuned: str, tmp_path: Path) -> None:
    file = tmp_path / "made.npz"
    ran = cli("predictor", "train", *SMALL, "-o", str(file), "--json")
    found = json.loads(ran.out)
    assert ran.code == 0 and file.exists() and found["file"] == str(file)
    assert len(found["spaces"]) == 2 and 0 < found["summary"]["predicted"]["geomean"] <= 1
    ran = cli("predictor", "evaluate", "--db", tuned)
    assert ran.code == 2 and "at least 2 problems" in ran.err
