import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.kernels.mlir.build import PACKED, schedule
from tests.kernels.mlir.proof.test_verify import MATMUL
from tests.tilewise.conftest import PROBLEM, serving, store_result
from tests.tilewise.installed import ROOT
from tests.tilewise.installed.conftest import with_extras
from tests.tilewise.installed.distributions import Distributions
from tests.tilewise.installed.environments import Ended, Environment
from tilewise.cli.command import Command
from tilewise.cli.parser import all_commands
from tilewise.kernels.mlir.cpu.script import emit_script
from tilewise.requirements import INCLUDED, MODULES

COMMANDS = {command.name: command for command in all_commands()}
FILES = {
    "problems.txt": f"{PROBLEM}\n",
    "suite.json": f'{{"name": "one", "problems": ["{PROBLEM}"]}}',
    "model.mlir": "func.func @main() { return }",
    "script.mlir": f"// problem: {PROBLEM}\nmodule {{}}\n",
    "plan.json": "{}",
}
GIVEN = {
    "asm": [PROBLEM],
    "bench": ["suite.json"],
    "compare": ["sqlite:///base.db", "sqlite:///new.db"],
    "db": ["check"],
    "driver": ["--scheduler", "tcp://127.0.0.1:1", "--service", "http://127.0.0.1:1"],
    "fetch": ["problems.txt", "-o", "scripts"],
    "import": ["model.mlir"],
    "kernel": [PROBLEM],
    "library": ["problems.txt", "-o", "library"],
    "model": ["model.mlir"],
    "plan": ["model.mlir"],
    "plot": [PROBLEM, "-o", "plot.svg"],
    "predictor": ["evaluate", "spaces"],
    "scheduler": ["--port", "0"],
    "script": [PROBLEM],
    "serve": ["--port", "0"],
    "show": [PROBLEM],
    "store": ["export", "archive.zip"],
    "token": ["list"],
    "top": ["--once"],
    "trials": [PROBLEM],
    "tune": [PROBLEM, "--trials", "4"],
    "verify": ["script.mlir"],
    "worker": ["--scheduler", "tcp://127.0.0.1:1"],
}
"""What each command is given; `doctor` takes nothing."""

FORMS = [
    ["script", PROBLEM, "--flavor", "air"],
    ["script", PROBLEM, "--flavor", "iree"],
    ["script", PROBLEM, "--flavor", "iree-spec"],
    ["script", "model.mlir", "--flavor", "iree"],
    ["script", "model.mlir", "--flavor", "iree", "--plan", "plan.json"],
    ["script", "model.mlir", "--place", "0"],
    ["script", "model.mlir", "--packs"],
    ["kernel", PROBLEM, "--format", "object", "-o", "kernel.o"],
    ["kernel", PROBLEM, "--format", "c-header"],
    ["plan", "model.mlir", "--run"],
    ["plot", "1", "-o", "plot.svg", "--kind", "nest"],
    ["store", "import", "suite.json"],
    ["token", "create", "ci", "--scope", "read"],
    ["db", "upgrade"],
    ["db", "prune"],
    ["fetch", "problems.txt", "-o", "scripts", "--check"],
    ["bench", "suite.json", "--peers", "openblas"],
]
"""Other forms of commands, which load other modules."""


def written(folder: Path) -> Path:
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return folder


@pytest.fixture(scope="module")
def bare(
    base: Environment, tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[str, ...], Ended]:
    folder = written(tmp_path_factory.mktemp("bare"))
    asked = [*([name, *GIVEN[name]] for name in GIVEN), *FORMS, ["doctor"]]
    ended = base.run_all(asked, folder, TILEWISE_DB=f"sqlite:///{folder}/results.db")
    return {tuple(one): end for one, end in zip(asked, ended, strict=True)}


def needing(ended: dict[tuple[str, ...], Ended]) -> Iterator[tuple[Command, Ended]]:
    for arguments, end in ended.items():
        if COMMANDS[arguments[0]].extra:
            yield COMMANDS[arguments[0]], end


def test_every_command_is_tried() -> None:
    without_needs = {name for name, command in COMMANDS.items() if not command.extra}
    assert {*GIVEN, *without_needs} == {*COMMANDS}


@pytest.mark.full
def test_a_command_that_lacks_something_says_what_to_install(
    bare: dict[tuple[str, ...], Ended],
) -> None:
    for arguments, end in bare.items():
        command = COMMANDS[arguments[0]]
        if not command.extra:
            continue
        assert (end.code, end.out, end.err.count("\n")) == (1, "", 1), (arguments, end)
        extras = [extra for extra in MODULES if f"install tilewise[{extra}]" in end.err]
        assert len(extras) == 1, (arguments, end.err)
        if list(arguments) not in FORMS:  # a form may need less
            assert extras == [command.extra], (arguments, end.err)


@pytest.mark.full
def test_a_server_is_advised_where_one_does_the_work(bare: dict[tuple[str, ...], Ended]) -> None:
    for name in GIVEN:
        command, end = COMMANDS[name], bare[(name, *GIVEN[name])]
        if command.extra:
            assert ("--server" in end.err) == (command.at_service == ""), (name, end.err)


@pytest.mark.full
def test_a_service_does_the_work_of_those(
    base: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = f"sqlite:///{tmp_path}/results.db"
    store_result(database, monkeypatch)
    light = [name for name, command in COMMANDS.items() if command.at_service == ""]
    asked = [[name, *GIVEN.get(name, ())] for name in light if name != "plan"]  # needs a worker
    asked += [["kernel", PROBLEM, "--format", "object", "-o", "x.o"],
              ["script", PROBLEM, "--with-payload"]]  # fmt: skip
    with serving(database, 0) as url:
        ended = base.run_all(asked, written(tmp_path), TILEWISE_SERVER=url)
    for arguments, end in zip(asked, ended, strict=True):
        assert "install" not in end.err, (arguments, end.err)
        is_refused = arguments[0] == "token"  # without a token nobody may list them
        assert end.code == is_refused, (arguments, end.err)
        assert "scope admin" in end.err or not is_refused


@pytest.mark.full
def test_the_extra_of_kernels_is_enough_to_verify_and_to_import(
    release: Distributions, tmp_path: Path
) -> None:
    made = with_extras(release, tmp_path / "environment", "kernels")
    written(tmp_path)
    (tmp_path / "script.mlir").write_text(emit_script(MATMUL, schedule(*PACKED)))
    verified, imported, examined = made.run_all(
        [["verify", "script.mlir"], ["import", "model.mlir"], ["doctor"]], tmp_path
    )
    assert (verified.code, imported.code, examined.code) == (0, 0, 0), (verified, imported)
    ready = next(line for line in examined.out.splitlines() if line.startswith("ready "))
    assert {"import", "verify"} <= set(ready.replace(",", "").split())


@pytest.mark.full
def test_doctor_says_of_each_command_what_it_lacks(bare: dict[tuple[str, ...], Ended]) -> None:
    end = bare[("doctor",)]
    assert end.code == 0 and not end.err
    lines = end.out.splitlines()
    for command, _ in needing(bare):
        (line,) = (one for one in lines if f"install tilewise[{command.extra}]" in one)
        assert f" {command.name}" in line
    (ready,) = (one for one in lines if one.startswith("ready "))
    for command in COMMANDS.values():
        is_listed = command.name in ready.replace(",", "").split()
        assert is_listed == (not command.extra), command.name
    (at_service,) = (one for one in lines if one.startswith("with server"))
    assert {"tune", "serve"} & set(at_service.replace(",", "").split()) == {"tune"}


def test_the_modules_of_extras_are_those_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    distributions = {
        module: {one.lower().replace("_", "-") for one in names}
        for module, names in packages_distributions().items()
    }
    distributions |= {  # of one namespace, or not installed for tests
        "iree.compiler": {"iree-base-compiler"},
        "iree.runtime": {"iree-base-runtime"},
        "opentelemetry.sdk": {"opentelemetry-sdk"},
        "opentelemetry.exporter.otlp.proto.http": {"opentelemetry-exporter-otlp-proto-http"},
        "torch": {"torch"},
        "jax": {"jax"},
        "onnxruntime": {"onnxruntime"},
    }
    for extra, wanted in project["optional-dependencies"].items():
        if extra in ("docs", "dev"):
            continue
        names = {one.partition("=")[0].partition(">")[0].partition("[")[0] for one in wanted}
        within = [one for one in wanted if one.startswith("tilewise[")]
        assert within == ([f"tilewise[{INCLUDED[extra]}]"] if extra in INCLUDED else [])
        installed = set[str]().union(*(distributions[module] for module in MODULES[extra]))
        assert names - {"tilewise"} <= installed, extra
        assert len(MODULES[extra]) == len(names - {"tilewise"}), extra
