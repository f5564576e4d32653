"""Commands do the same here and at a service; so do those on results that cannot be run."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.service import fakes
from tests.tilewise.conftest import PROBLEM, Cli, search_by, serving, store_result, written
from tilewise.backends import local
from tilewise.kernels.errors import UnsupportedError
from tilewise.kernels.mlir.tuning_spec.config import read_steps
from tilewise.kernels.schedule import Register, Schedule, Skinny, Stream
from tilewise.search.records import TuneRequest, TuneResult, Winner
from tilewise.service.db import make_engine, make_sessions, models, writing

ABSENT = "matmul:m=8,n=8,k=8,dtype=f32"

SAME: list[tuple[str, ...]] = [
    *(("show", PROBLEM, *more) for more in ((), ("--json",), ("--target", "gpu:x"))),
    *(("show", PROBLEM, "--cache", mode) for mode in ("hot", "cold")),
    *(("script", PROBLEM, *more) for more in ((), ("--json",), ("--with-payload",))),
    *(("trials", PROBLEM, *more)
      for more in ((), *(("--format", form) for form in ("json", "csv", "t4")))),
    *((name, ABSENT) for name in ("show", "script", "kernel", "trials")),
    ("show", "matmul:m=0,n=1,k=1,dtype=f32"), ("kernel", PROBLEM), ("asm", PROBLEM),
    *(("tune", PROBLEM, *more)
      for more in (("--trials", "4", "--json"), ("--trials", "0"), ("--target", "cpu:z80"))),
]  # fmt: skip


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A database with a result, and the URL of a service on it."""
    database = f"sqlite:///{tmp_path_factory.mktemp('both') / 'results.db'}"
    with pytest.MonkeyPatch.context() as patch:
        store_result(database, patch)
    with writing(make_sessions(make_engine(database))) as session:
        session.query(models.Machine).one().bandwidth_gbs = 20.0
    with serving(database, 1) as url:
        yield database, url


@pytest.mark.full
@pytest.mark.parametrize("command", SAME, ids=" ".join)
def test_a_command_does_the_same_at_a_service(cli, both, command: tuple[str, ...]) -> None:
    here = cli(*command, "--db", both[0])
    there = cli(*command, "--server", both[1])
    assert (there.code, there.out) == (here.code, here.out)
    assert bool(there.err) == bool(here.err)
    if here.code != 3:  # what is not stored is told by the service, which knows it by its key
        assert there.err == here.err
    assert here.code or there.out


def test_a_new_search_ends_with_the_same_object(cli: Cli, both: tuple[str, str]) -> None:
    new = ABSENT.replace("k=8", "k=24")
    ran = cli("show", new, "--predict", "--trials", "2", "--server", both[1])
    assert "neither timed" in ran.out and re.search(r": job \d+ searches", ran.err)
    made = cli("tune", new, "--trials", "2", "--json", "--server", both[1]).json
    here = cli("show", new, "--json", "--db", both[0]).json
    assert made == here and made["trials"]["timed"] == 2


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "what"),
    [("convergence", PROBLEM), ("convergence", "1"), ("roofline", "1"), ("nest", PROBLEM)],
)
def test_a_plot_is_the_same_at_a_service(cli, both, tmp_path, kind: str, what: str) -> None:
    here, there = tmp_path / "here.svg", tmp_path / "there.svg"
    for file, option, where in zip((here, there), ("--db", "--server"), both, strict=True):
        ran = cli("plot", what, "--kind", kind, "-o", str(file), option, where)
        assert (ran.code, ran.err) == (0, "")
    drawn = [re.sub(r"gradient_\d+", "gradient", file.read_text()) for file in (here, there)]
    assert drawn[0] == drawn[1] and drawn[0].startswith("<svg")


def test_a_service_is_examined_and_does_not_run_what_a_client_gives_it(
    cli: Cli, both: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWISE_SERVER", both[1])
    found = cli("doctor", "--json").json
    assert found["server"] == "ok" and found["targets"] and len(found["workers"]) == 1
    assert "jobs at once" in cli("doctor").out
    script = written(tmp_path / "script.mlir", "module {}")
    assert "unknown option --server" in cli("verify", script, "--server", both[1]).error()
    refused = cli("script", PROBLEM, "--flavor", "iree", "--with-payload").error()
    assert "is made without --server" in refused
    refused = cli("script", PROBLEM, "--flavor", "air", "--l1-bytes", "65536").error()
    assert "works only without --server" in refused


def test_a_suite_is_measured_here_with_schedules_of_a_service(cli, both, tmp_path) -> None:
    suite = written(tmp_path / "suite.json", {"suite": "one", "problems": [PROBLEM]})
    ran = cli("bench", suite, "--peers", "openblas", "--json", "--server", both[1])
    (row,) = ran.json["problems"]
    assert row["ours"]["gflops"] > 0


RETIRED = [
    {"step": "divide", "dim": "k", "size": 24},
    {"step": "alternate", "dim": "k"},
    *Schedule((Stream("k", 8), Register(2, 32), Skinny("n"))).to_json(),
]
LEVELS = ("distribution", "m", 64), ("distribution", "n", 96), ("vector_reduction", "k", 4)
OF_IREE = [
    *({"step": "level", "at": at, "dim": dim, "size": size} for at, dim, size in LEVELS),
    {"step": "pipeline", "passes": "DoubleTilingExpert", "remainders": "masked"},
]
PARAMS = {"unroll": 1, "outer": "cols", "pack_a": False, "pack_b": False, "tile": "2x2w8e"}


@dataclass(frozen=True)
class Case:
    problem: str
    target: str
    steps: list[Any]
    shown: str
    refusal: str


CASES = {
    "retired": Case(
        "matmul:m=2,n=131,k=101,dtype=f32,bias,epilogue=relu", "host", RETIRED,
        "divide dim=k size=24", "an earlier version had this step; search again",
    ),
    "iree": Case(
        "matmul:m=64,n=96,k=40,dtype=f32", "iree:host", OF_IREE,
        "level at=distribution dim=n size=96", "no step of a schedule for a target cpu:NAME",
    ),
}  # fmt: skip


@pytest.fixture(params=CASES)
def case(request, database, tmp_path, monkeypatch) -> Case:
    """A result whose trials all have the steps, in the database of the test."""
    if request.param == "iree" and find_spec("iree.runtime") is None:
        pytest.skip("without IREE's runtime the target is refused")
    made = CASES[request.param]
    steps = read_steps(made.steps)

    def tune(_problem: Any, _target: Any, request: TuneRequest, store: Any, **_: Any) -> TuneResult:
        for number in range(request.trials):
            store.add(replace(fakes.trial(number), params=PARAMS, schedule=steps))
        best = Winner(steps, fakes.measurement(90.0), 100.0)
        return TuneResult(best, tuple(store.trials()), 0.5, True)

    def unproven(*_: object, **_named: object) -> None:
        raise UnsupportedError("nothing is proven here")

    monkeypatch.chdir(tmp_path)
    search_by(monkeypatch, tune, unproven)
    local.LocalBackend(database).tune(made.problem, made.target, TuneRequest(2), lambda *_: None)
    return made


COMMANDS = (
    ("kernel",), ("kernel", "--format", "object", "-o", "made.o"), ("asm",),
    ("plot", "--kind", "nest", "-o", "nest.svg"),
)  # fmt: skip


def test_it_is_shown_and_copied_and_no_kernel_is_made(cli: Cli, case: Case, server: str) -> None:
    given = (case.problem, "--target", case.target)

    def told(command: str, *more: str) -> Any:
        return cli(command, *given, *more).json

    here = told("show", "--json")
    assert here["best"]["steps"] == case.steps
    assert here["best"]["hash"] == read_steps(case.steps).hash
    trials = told("trials", "--format", "json")
    assert [trial["steps"] for trial in trials] == [case.steps] * 2
    assert trials[0]["params"]["tile"] == PARAMS["tile"]
    for command in (("show",), ("trials",), ("trials", "--format", "csv")):
        ran = cli(command[0], *given, *command[1:])
        assert ran.code == 0 and case.shown in ran.out
    assert told("show", "--json", "--server", server) == here
    assert told("trials", "--format", "json", "--server", server) == trials
    assert cli("store", "export", "all.zip").code == 0
    assert cli("store", "import", "all.zip", "--db", "sqlite:///other.db").code == 0
    assert told("show", "--json", "--db", "sqlite:///other.db") == here
    for command, where in zip(COMMANDS, [(), ("--server", server)] * 2, strict=True):
        ran = cli(command[0], *given, *command[1:], *where)
        assert ran.code != 0 and ran.err.count("\n") == 1
        assert case.refusal in ran.err
