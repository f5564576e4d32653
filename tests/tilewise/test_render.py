from typing import Any

import pytest

from tests.service import fakes
from tilewise.cli import render

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


def test_a_method_that_is_not_direct_tells_its_rms_errors() -> None:
    plain = found()["best"]["measured"]
    text = render.result_text(found(best={"measured": plain | {"accuracy": None}}))
    assert "\naccuracy" not in text
    errors = {"gaussian": 1.9, "relu": 2.125}
    text = render.result_text(found(best={"measured": plain | {"accuracy": errors}}))
    said = "rms error 1.90 (gaussian), 2.12 (relu) times the direct method's"
    assert line(text, "accuracy") == said


def test_what_a_result_is_not_is_said() -> None:
    text = render.result_text(found())
    counts = "4 timed, 3 pruned, 2 failed of 9 requested, in 2.5 s; at most 77 schedules"
    assert (line(text, "toolchain"), line(text, "trials")) == ("tools", counts)
    text = render.result_text(found(stale=True, complete=False))
    assert line(text, "toolchain") == "tools  (stale)"
    assert line(text, "trials") == f"{counts} (cut short)"


@pytest.mark.parametrize(
    ("proof", "target", "says"),
    [
        ({"by": "far-away"}, 1, "reported by the worker on far-away)"),
        ({}, 1, "proven: applied, run, error 1.5e-06 within 4e-05, 33.0 GFLOP/s (iree 3)"),
        ({}, 2, "33.0 GFLOP/s on one thread (iree 3)"),
        ({"hash": "0123"}, 1, "proven of schedule 0123: applied"),
        (
            {"failure": "wrong", "message": "off by 3"},
            1,
            "not proven, so not served (wrong: off by 3)",
        ),
    ],
)
def test_a_script_is_proven_or_not(proof: Json, target: int, says: str) -> None:
    text = render.result_text(found(proof=proof, target=f"cpu:x,threads={target}"))
    assert says in line(text, "script")


def test_a_problem_without_a_proof_has_no_script() -> None:
    assert line(render.result_text(found() | {"proof": None}), "script") == "none"


def test_a_time_has_the_unit_of_its_magnitude() -> None:
    for time_us, said in ((0.0136, "13.6 ns"), (74.06, "74.1 us"), (13595.1, "13.60 ms")):
        assert line(render.result_text(found(best={"time_us": time_us})), "speed").endswith(
            f"; {said}"
        )


def test_a_noisy_result_says_how_to_mend_it() -> None:
    text = render.result_text(found(best={"quality": "noisy"}))
    assert line(text, "quality") == "noisy machine: measure again with --again"
    for quality in ({"quality": "good"}, {}):  # an older service says nothing of it
        assert "noisy" not in render.result_text(found(best=quality))


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


def test_a_share_of_the_peak_above_one_is_explained() -> None:
    steps = [{"step": "strassen", "levels": 1}, *BEST.to_json()]
    said = line(render.result_text(found(best={"steps": steps, "peak_fraction": 1.01})), "peak")
    assert said.endswith("; strassen does fewer multiplications than GFLOP/s counts")


def test_a_script_of_another_schedule_has_the_reason() -> None:
    proof = {"hash": "0123", "reason": "matmul:m=4,n=4,k=4,dtype=f32: it has no script"}
    text = render.result_text(found(proof=proof))
    assert f"          the best schedule {BEST.hash} has no script: it has no script\n" in text
    text = render.result_text(found(proof={"hash": "0123"}))
    assert "          it is the fastest script that was proven\n" in text
    assert "fastest script" not in render.result_text(found())
