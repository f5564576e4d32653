import json
from pathlib import Path

import pytest

from tests.tilewise.conftest import Cli
from tilewise.kernels.mlir.tuning_spec.compiled import check_matched
from tilewise.kernels.problem import parse_problem

PROBLEMS = ("matmul:m=4,n=512,k=128,dtype=f32", "matmul:m=4,n=512,k=128,dtype=f32,bias")
BUDGET = ("--trials", "2", "--seconds", "4")
UNCOVERED = "conv2d:n=1,h=8,w=8,ci=8,co=8,kh=3,kw=3,dtype=f32"


def test_what_no_spec_covers_is_refused_before_any_search(cli: Cli) -> None:
    pytest.importorskip("iree.runtime", reason="without IREE's runtime the target is refused")
    for arguments in (
        ("tune", UNCOVERED, "--target", "iree:host"),
        ("script", UNCOVERED, "--flavor", "iree-spec"),
    ):
        ran = cli(*arguments)
        assert (ran.code, ran.out) == (2, "")
        assert "n=1 with kh=3, kw=3 cannot be tuned by a spec" in ran.err


def test_what_was_not_searched_is_named_with_the_way_out(cli: Cli, tuned: str) -> None:
    ran = cli("script", PROBLEMS[0], "--flavor", "iree-spec")
    assert (ran.code, ran.out) == (3, "")
    assert f"tilewise tune {PROBLEMS[0]} --target iree:host makes one" in ran.err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--with-payload",), "--with-payload is not for --flavor iree-spec"),
        (("--l1-bytes", "4096"), "--l1-bytes is for --flavor air"),
        (("--target", "gpu"), "target 'gpu' is none of"),
    ],
)
def test_options_of_other_flavors_are_refused(cli: Cli, more: tuple[str, ...], said: str) -> None:
    ran = cli("script", PROBLEMS[0], "--flavor", "iree-spec", *more)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


@pytest.mark.parametrize(
    "command",
    [
        ("script", PROBLEMS[0]),
        ("script", PROBLEMS[0], "--flavor", "iree"),
        ("fetch", "list.txt", "-o", "out", "--tune-missing"),
    ],
)
def test_a_target_of_irees_own_code_has_specs_alone(cli: Cli, command: tuple[str, ...]) -> None:
    ran = cli(*command, "--target", "iree:host")
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "target 'iree:host': IREE's own code has" in ran.err and "iree-spec" in ran.err


@pytest.mark.full
def test_a_search_through_iree_is_stored_and_its_spec_is_served(cli: Cli, tmp_path: Path) -> None:
    pytest.importorskip("iree.runtime", reason="IREE's runtime, which times, is not installed")
    problem = PROBLEMS[0]
    ran = cli("tune", problem, "--target", "iree:host", *BUDGET, "--json")
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    assert found["target"].startswith("iree:")
    assert set(found["peers"]) == {"iree", "iree-dt"}
    assert found["best"]["steps"][-1]["step"] == "pipeline"
    assert found["proof"]["executed"]
    path = tmp_path / "spec.mlir"
    ran = cli("script", problem, "--flavor", "iree-spec", "-o", str(path))
    if found["proof"]["failure"] is None:
        assert ran.code == 0, ran.err
        check_matched(path.read_text(), [parse_problem(problem)])
        made = json.loads(cli("script", problem, "--flavor", "iree-spec", "--json").out)
        assert (made["problems"], made["left_out"]) == ([problem], [])
        assert made["script"] == path.read_text()
    else:  # this machine's IREE is faster alone, and nothing is served
        assert (found["proof"]["failure"], ran.code) == ("slower", 3)
        assert f"{problem}: IREE alone is faster" in ran.err
    for command in (("kernel",), ("script", "--flavor", "cpu"), ("asm",)):
        ran = cli(*command, problem, "--target", "iree:host")
        assert ran.code in (2, 3) and ran.out == ""
