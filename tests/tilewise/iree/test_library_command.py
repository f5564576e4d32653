import json
from pathlib import Path

import pytest

from examples.models.graph import Graph, Value
from examples.models.spellings import spelled
from tests.tilewise.conftest import PROBLEM, Cli
from tilewise.client import Client
from tilewise.kernels.mlir.iree.module_text import module_text
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.target import resolve
from tilewise.search.libraries import library
from tilewise.search.libraries.gain import Gain

OTHER = "matmul:m=40,n=48,k=31,dtype=f32"
ABSENT = "matmul:m=40,n=48,k=33,dtype=f32"
FLAVOR = ("--flavor", "iree")
FAST = Gain(True, 1e-6, 1e-3, 10.0, 9.0, {"default": 20.0, "data tiling": 15.0})
SLOW = Gain(True, 1e-6, 1e-3, 16.0, 9.0, {"default": 20.0, "data tiling": 15.0})


@pytest.fixture(autouse=True)
def gains(monkeypatch: pytest.MonkeyPatch) -> dict[str, Gain]:
    told: dict[str, Gain] = {}
    monkeypatch.setattr(library, "measured", lambda problem, *_: told.get(problem.canonical, FAST))
    return told


@pytest.mark.usefixtures("tuned")
def test_a_library_of_problems_and_lists(cli: Cli, tmp_path: Path) -> None:
    listed = tmp_path / "problems.txt"
    listed.write_text(f"{PROBLEM}  # the same\n")
    ran = cli("script", PROBLEM, str(listed), *FLAVOR)
    assert ran.code == 0
    assert ran.out.count('hal.executable.source"') == 1
    assert f"// {PROBLEM}: tilewise_matmul" in ran.out


@pytest.mark.usefixtures("tuned")
def test_json_has_the_figures_of_each_problem(cli: Cli) -> None:
    found = json.loads(cli("script", PROBLEM, *FLAVOR, "--json").out)
    assert found["flavor"] == "iree"
    assert found["script"].startswith("// Tuned kernels for IREE")
    (row,) = found["problems"]
    assert (row["problem"], row["served"], row["ratio"]) == (PROBLEM, True, 1.5)
    assert row["iree_time_us"] == {"default": 20.0, "data tiling": 15.0}
    assert found["left_out"] == []


@pytest.mark.usefixtures("tuned")
def test_what_is_not_served_is_said_and_none_is_an_error(cli: Cli, gains: dict[str, Gain]) -> None:
    gains[PROBLEM] = SLOW
    ran = cli("script", PROBLEM, *FLAVOR)
    assert (ran.code, ran.out) == (3, "")
    assert "IREE alone is faster: 15.0 us (data tiling), 16.0 us" in ran.err


@pytest.mark.usefixtures("tuned")
def test_what_is_not_stored_is_named(cli: Cli) -> None:
    ran = cli("script", PROBLEM, OTHER, *FLAVOR)
    assert (ran.code, ran.out) == (3, "")
    assert f"{OTHER}: no schedule is stored" in ran.err


@pytest.mark.full
@pytest.mark.usefixtures("tuned")
def test_a_models_ops_are_replaced_and_counted(cli: Cli, tmp_path: Path) -> None:
    model, other = tmp_path / "model.mlir", tmp_path / "other.mlir"
    model.write_text(module_text(parse_problem(PROBLEM)))
    other.write_text(module_text(parse_problem(OTHER)))
    found = json.loads(cli("script", str(model), *FLAVOR, "--json").out)
    (told,) = found["models"]
    assert told == {"file": str(model), "ops": 1, "replaced": 1, "passes": 0, "left": []}
    missing = cli("script", str(other), *FLAVOR)
    assert missing.code == 3
    strict = cli("script", str(model), *FLAVOR, "--accuracy", "strict")
    assert strict.code == 3
    assert f"{PROBLEM},accuracy=strict: no schedule is stored" in strict.err
    assert OTHER in missing.err


def test_what_is_no_model_is_bad_input(cli: Cli, tmp_path: Path) -> None:
    broken, empty = tmp_path / "broken.mlir", tmp_path / "empty.mlir"
    broken.write_text("func.func @f() { nonsense }")
    empty.write_text("func.func @f() { return }")
    for path, said in ((broken, "does not compile"), (empty, "no op that is a problem")):
        ran = cli("script", str(path), *FLAVOR)
        assert (ran.code, ran.out) == (2, "")
        assert said in ran.err
        assert ran.err.count("\n") == 1
    assert cli("script", str(tmp_path / "none.mlir"), *FLAVOR).code == 2


@pytest.mark.full
def test_a_library_of_several_is_made_here_of_what_a_service_has(
    cli: Cli, served: str, tmp_path: Path
) -> None:
    with Client(served) as client:
        for problem in (PROBLEM, OTHER):
            client.tune(problem, trials=2)
    listed = tmp_path / "problems.txt"
    listed.write_text(f"{PROBLEM}\n{OTHER}\n")
    for given in ((PROBLEM, OTHER), (str(listed),)):
        found = json.loads(cli("script", *given, *FLAVOR, "--server", served, "--json").out)
        assert [row["problem"] for row in found["problems"]] == [PROBLEM, OTHER]
        assert found["target"] == resolve("host").canonical
    model = tmp_path / "model.mlir"
    model.write_text(module_text(parse_problem(PROBLEM)))
    ran = cli("script", str(model), *FLAVOR, "--server", served, "--json")
    assert json.loads(ran.out)["models"][0]["replaced"] == 1
    missing = cli("script", PROBLEM, ABSENT, *FLAVOR, "--server", served)
    assert (missing.code, missing.out) == (3, "")
    assert f"{ABSENT}: no schedule is stored" in missing.err


def test_a_plans_kernels_are_those_of_its_models_ops(cli: Cli, tuned: str, tmp_path: Path) -> None:
    graph = Graph("net", Value("given", (1, 6, 6, 8)))
    graph.conv(graph.conv(graph.given, 16, 1), 16, 1)
    model, folder = tmp_path / "net.mlir", tmp_path / "planned"
    model.write_text(spelled(graph))
    assert (
        cli("plan", str(model), "--trials", "2", "--layouts", "model", "-o", str(folder)).code == 0
    )
    plan = folder / "plan.json"
    ran = cli("script", str(model), *FLAVOR, "--plan", str(plan), "--json")
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    (told,) = found["models"]
    assert told == {"file": str(model), "ops": 2, "replaced": 2, "passes": 0, "left": []}
    kernels = {node["problem"] for node in json.loads(plan.read_text())["nodes"]}
    assert {row["problem"] for row in found["problems"]} == kernels


def test_what_no_plan_can_be_for_is_bad_input(cli: Cli, tmp_path: Path) -> None:
    text, absent, deep = (tmp_path / f"{name}.json" for name in ("text", "absent", "deep"))
    text.write_text("{}")
    deep.write_text("[" * 100_000)
    model = tmp_path / "model.mlir"
    model.write_text(module_text(parse_problem(PROBLEM)))
    for arguments in (
        (str(model), *FLAVOR, "--plan", str(text)),
        (str(model), *FLAVOR, "--plan", str(absent)),
        (str(model), *FLAVOR, "--plan", str(deep)),
        (PROBLEM, *FLAVOR, "--plan", str(text)),
        (str(model), str(model), *FLAVOR, "--plan", str(text)),
        (str(model), "--plan", str(text)),
    ):
        ran = cli("script", *arguments)
        assert (ran.code, ran.out) == (2, ""), arguments
        assert ran.err.count("\n") == 1, ran.err
