"""Libraries and tuning specs for IREE."""

import json
import re
from argparse import Namespace
from pathlib import Path
from unittest.mock import Mock

import pytest

from examples.models.graph import Graph, Value
from examples.models.spellings import spelled
from tests.tilewise.conftest import PROBLEM, Cli, written
from tilewise.cli.commands.scripts.iree_library import _describe
from tilewise.client import Client
from tilewise.kernels.dispatches import compilation
from tilewise.kernels.dispatches.extraction import extract
from tilewise.kernels.dispatches.extraction.extract import Cut
from tilewise.kernels.errors import CompilerError
from tilewise.kernels.mlir.frontend import read
from tilewise.kernels.mlir.iree.module_text import module_text
from tilewise.kernels.mlir.tuning_spec.compiled import check_matched
from tilewise.kernels.problem import parse_problem, parse_range
from tilewise.kernels.target import resolve
from tilewise.model.libraries import NO_PATTERN, UserModel, entry_of, read_model, replaced_by
from tilewise.model.reference import COMPILE_S
from tilewise.search.libraries import library
from tilewise.search.libraries.gain import Gain

OTHER = "matmul:m=40,n=48,k=31,dtype=f32"
ABSENT = "matmul:m=40,n=48,k=33,dtype=f32"
FLAVOR = ("--flavor", "iree")
FAST = Gain(True, 1e-6, 1e-3, 10.0, 9.0, {"default": 20.0, "data tiling": 15.0})
SLOW = Gain(True, 1e-6, 1e-3, 16.0, 9.0, {"default": 20.0, "data tiling": 15.0})


@pytest.fixture
def gains(tuned: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Gain]:
    """What kernels gain over IREE, in a database with a result; as `FAST` where nothing is set."""
    gains: dict[str, Gain] = {}
    monkeypatch.setattr(library, "measured", lambda problem, *_: gains.get(problem.canonical, FAST))
    return gains


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch) -> UserModel:
    """A model of three ops, which may take minutes to read."""
    cuts = tuple(Cut(problem, "@f") for problem in (PROBLEM, OTHER, ABSENT))
    monkeypatch.setattr(read, "as_module", lambda module, **_: module)
    monkeypatch.setattr(extract, "cut_module", lambda _, seconds, dim: cuts[: int(seconds) // 300])
    return read_model("m.mlir", b"")


@pytest.mark.usefixtures("gains")
def test_a_library_of_problems_and_lists_with_its_figures(cli: Cli, tmp_path: Path) -> None:
    listed = written(tmp_path / "problems.txt", f"{PROBLEM}  # the same\n")
    ran = cli("script", PROBLEM, listed, *FLAVOR)
    assert ran.code == 0
    assert ran.out.count('hal.executable.source"') == 1
    assert f"// {PROBLEM}: tilewise_matmul" in ran.out
    found = cli("script", PROBLEM, *FLAVOR, "--json").json
    assert found["flavor"] == "iree" and found["script"].startswith("// Tuned kernels for IREE")
    (row,) = found["problems"]
    assert (row["problem"], row["served"], row["ratio"]) == (PROBLEM, True, 1.5)
    assert row["iree_time_us"] == {"default": 20.0, "data tiling": 15.0}
    assert found["left_out"] == []


def test_what_is_not_served_or_not_stored_is_named(cli: Cli, gains: dict[str, Gain]) -> None:
    gains[PROBLEM] = SLOW
    for given, said in (
        ((PROBLEM, *FLAVOR), "IREE alone is faster: 15.0 us (data tiling), 16.0 us"),
        ((PROBLEM, OTHER, *FLAVOR), f"{OTHER}: no schedule is stored"),
        ((SPEC, "--flavor", "iree-spec"), f"tilewise tune {SPEC} --target iree:host makes one"),
    ):
        ran = cli("script", *given)
        assert (ran.code, ran.out) == (3, "") and said in ran.err


@pytest.mark.full
@pytest.mark.usefixtures("gains")
def test_a_models_ops_are_replaced_and_counted(cli: Cli, tmp_path: Path) -> None:
    model = written(tmp_path / "model.mlir", module_text(parse_problem(PROBLEM)))
    other = written(tmp_path / "other.mlir", module_text(parse_problem(OTHER)))
    (listed,) = cli("script", model, *FLAVOR, "--json").json["models"]
    assert listed == {"file": model, "ops": 1, "replaced": 1, "passes": 0, "left": []}
    missing = cli("script", other, *FLAVOR)
    strict = cli("script", model, *FLAVOR, "--accuracy", "strict")
    assert missing.code == strict.code == 3
    assert f"{PROBLEM},accuracy=strict: no schedule is stored" in strict.err
    assert OTHER in missing.err


@pytest.mark.usefixtures("ranged")
def test_a_stored_range_serves_the_ranges_that_it_contains(cli: Cli) -> None:
    for sizes, variants, choice in (("2..5", 2, (0, 0, 1, 1)), ("4..8:4", 1, (0, 0))):
        problems = parse_range(f"matmul:m={sizes},n=48,k=32,dtype=f32")
        whole = entry_of(problems, cli("show", str(problems), "--json").json).schedule
        assert (whole.problems, whole.choice, len(whole.variants)) == (problems, choice, variants)


def test_calls_of_one_kernel_are_counted_once(cut: UserModel, monkeypatch) -> None:
    call = "flow.dispatch @tilewise_a_executable::@run_a("
    monkeypatch.setattr(compilation, "preprocessed", lambda *given: call * (given[-1] == COMPILE_S))
    row = library.KernelRow(parse_problem(ABSENT), SLOW, parse_problem(ABSENT))
    names, reasons = dict.fromkeys((PROBLEM, OTHER), "tilewise_a"), {ABSENT: "one form is slow"}
    found = replaced_by(library.ProvenLibrary("", (row,), names, reasons), cut)
    assert (found.calls, found.left) == (1, ((OTHER, 1, NO_PATTERN), (ABSENT, 1, SLOW.reason)))


def test_a_library_is_written_whose_effect_is_unknown(cut, monkeypatch, capsys) -> None:
    monkeypatch.setattr(compilation, "preprocessed", Mock(side_effect=CompilerError("no code")))
    made = library.ProvenLibrary("the text", (), {})
    assert _describe(made, "host", [cut], Namespace(json=False)) == "the text"
    assert "m.mlir: the ops that call a kernel are not counted: no code" in capsys.readouterr().err


def test_what_is_no_model_is_bad_input(cli: Cli, tmp_path: Path) -> None:
    for op, said in (("nonsense", "does not compile"), ("return", "no op that is a problem")):
        path = written(tmp_path / "model.mlir", f"func.func @f() {{ {op} }}")
        assert said in cli("script", path, *FLAVOR).error()
    assert cli("script", str(tmp_path / "none.mlir"), *FLAVOR).code == 2


@pytest.mark.full
@pytest.mark.usefixtures("gains")
def test_a_library_of_several_is_made_here_of_what_a_service_has(cli, served, tmp_path) -> None:
    with Client(served) as client:
        for problem in (PROBLEM, OTHER):
            client.tune(problem, trials=2)
    listed = written(tmp_path / "problems.txt", f"{PROBLEM}\n{OTHER}\n")
    for given in ((PROBLEM, OTHER), (listed,)):
        found = cli("script", *given, *FLAVOR, "--server", served, "--json").json
        assert [row["problem"] for row in found["problems"]] == [PROBLEM, OTHER]
        assert found["target"] == resolve("host").canonical
    model = written(tmp_path / "model.mlir", module_text(parse_problem(PROBLEM)))
    ran = cli("script", model, *FLAVOR, "--server", served, "--json")
    assert json.loads(ran.out)["models"][0]["replaced"] == 1
    missing = cli("script", PROBLEM, ABSENT, *FLAVOR, "--server", served)
    assert (missing.code, missing.out) == (3, "")
    assert f"{ABSENT}: no schedule is stored" in missing.err


@pytest.mark.usefixtures("gains")
def test_a_plans_kernels_are_those_of_its_models_ops(cli: Cli, tmp_path: Path) -> None:
    graph = Graph("net", Value("given", (1, 6, 6, 8)))
    graph.conv(graph.conv(graph.given, 16, 1), 16, 1)
    model, folder = written(tmp_path / "net.mlir", spelled(graph)), tmp_path / "planned"
    given = ("--trials", "2", "--layouts", "model", "-o", str(folder))
    assert cli("plan", model, *given).code == 0
    plan = folder / "plan.json"
    ran = cli("script", model, *FLAVOR, "--plan", str(plan), "--json")
    assert f"tilewise model {model} --as iree --plan {plan} --json\n" in ran.err
    (listed,) = (found := ran.json)["models"]
    assert listed == {"file": model, "ops": 2, "replaced": 2, "passes": 0, "left": []}
    kernels = {node["problem"] for node in json.loads(plan.read_text())["nodes"]}
    assert {row["problem"] for row in found["problems"]} == kernels


def test_what_no_plan_can_be_for_is_bad_input(cli: Cli, tmp_path: Path) -> None:
    text, deep = written(tmp_path / "x.json", "{}"), written(tmp_path / "y.json", "[" * 100_000)
    model = written(tmp_path / "model.mlir", module_text(parse_problem(PROBLEM)))
    for arguments in (
        *((model, *FLAVOR, "--plan", plan) for plan in (text, deep, str(tmp_path / "absent"))),
        (PROBLEM, *FLAVOR, "--plan", text),
        (model, model, *FLAVOR, "--plan", text),
        (model, "--plan", text),
    ):
        cli("script", *arguments).error()


SPEC = "matmul:m=4,n=512,k=128,dtype=f32"
BUDGET = ("--trials", "2", "--seconds", "20")  # so long that a busy machine executes the proof
UNCOVERED = "conv2d:n=1,h=8,w=8,ci=8,co=8,kh=3,kw=3,dtype=f32"
OWN_CODE = "target 'iree:host': IREE's own code has .*iree-spec"


@pytest.mark.parametrize(("command", "said"), [
    (("tune", UNCOVERED, "--target", "iree:host"), "n=1 with kh=3, kw=3 cannot be tuned by"),
    (("script", UNCOVERED, "--flavor", "iree-spec"), "n=1 with kh=3, kw=3 cannot be tuned by"),
    (("script", SPEC, "--flavor", "iree-spec", "--with-payload"), "--with-payload is not for"),
    (("script", SPEC, "--flavor", "iree-spec", "--l1-bytes", "1"), "is for --flavor air"),
    (("script", SPEC, "--flavor", "iree-spec", "--target", "gpu"), "target 'gpu' is none of"),
    (("script", SPEC, "--target", "iree:host"), OWN_CODE),
    (("script", SPEC, *FLAVOR, "--target", "iree:host"), OWN_CODE),
    (("fetch", "x", "-o", "out", "--tune-missing", "--target", "iree:host"), OWN_CODE),
])  # fmt: skip
def test_what_specs_do_not_do_is_refused(cli: Cli, command: tuple[str, ...], said: str) -> None:
    pytest.importorskip("iree.runtime", reason="without IREE's runtime the target is refused")
    assert re.search(said, cli(*command).error())


@pytest.mark.full
def test_a_search_through_iree_is_stored_and_its_spec_is_served(cli: Cli, tmp_path: Path) -> None:
    pytest.importorskip("iree.runtime", reason="IREE's runtime, which times, is not installed")
    found = cli("tune", SPEC, "--target", "iree:host", *BUDGET, "--json").json
    assert found["target"].startswith("iree:")
    assert set(found["peers"]) == {"iree", "iree-dt"}
    assert found["best"]["steps"][-1]["step"] == "pipeline"
    assert found["proof"]["executed"]
    path = tmp_path / "spec.mlir"
    ran = cli("script", SPEC, "--flavor", "iree-spec", "-o", str(path))
    if found["proof"]["failure"] is None:
        assert ran.code == 0, ran.err
        check_matched(path.read_text(), [parse_problem(SPEC)])
        made = cli("script", SPEC, "--flavor", "iree-spec", "--json").json
        assert (made["problems"], made["left_out"]) == ([SPEC], [])
        assert made["script"] == path.read_text()
    else:  # this machine's IREE is faster alone, and nothing is served
        assert (found["proof"]["failure"], ran.code) == ("slower", 3)
        assert f"{SPEC}: IREE alone is faster" in ran.err
    for command in (("kernel",), ("script", "--flavor", "cpu"), ("asm",)):
        ran = cli(*command, SPEC, "--target", "iree:host")
        assert ran.code in (2, 3) and ran.out == ""
