"""A step, an instruction, a micro-kernel and a parameter that Tilewise lacks: the files here."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.cases import cases, some
from tests.extension.blocks import NAME, blocks, in_blocks
from tests.extension.fmuladd import FMULADDS
from tests.extension.fused_tile import FusedTile
from tests.extension.reorder import Reorder
from tests.extension.winograd_form import WinogradForm
from tests.kernels.native_case import check as check_native
from tests.kernels.nest.test_steps import LARGEST, MATMUL, REGISTER, made, step
from tests.kernels.nest.test_steps import check as check_nest
from tests.kernels.strategies import problems, schedules
from tests.short_timings import python_path
from tilewise.kernels import instructions, steps
from tilewise.kernels.errors import LoweringError, ScheduleError
from tilewise.kernels.instructions import Form
from tilewise.kernels.native.microkernels import kinds
from tilewise.kernels.native.microkernels.outer_product import OuterProduct
from tilewise.kernels.native.plan import plan
from tilewise.kernels.nest import printed
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Schedule, check_legal, fast_algorithm, loop_nest
from tilewise.kernels.steps import STEPS, InstructionChoice, Register, Stream, Tile
from tilewise.kernels.system.children import child_environment
from tilewise.kernels.system.toolchain import generator_hash
from tilewise.kernels.target import Target
from tilewise.search.errors import SearchError
from tilewise.search.space import registry
from tilewise.search.space.parameters import Parameter
from tilewise.search.space.space import Space
from tilewise.service.api.documents import space_json

SQUARE = parse_problem("matmul:m=61,n=100,k=72,dtype=f32")
TILES = ("stream dim=k depth=20", "tile dim=n size=32")
GOLDEN = """
for n step 32:  # tile, 2 trips
  for k step 20:  # k-block, 3 trips
    pack B to panels 2x1x20x16
    for n step 16:  # micro, 2 trips
      for m step 6:  # micro, 6 trips
        C += A * B  # 6x16 over 20
        store C (bias, relu)"""


def test_the_step_makes_its_nest_and_the_nest_the_result() -> None:
    with steps.registered(Reorder):
        nest = made(MATMUL, (*TILES, "reorder dim=k", "pack operand=B", REGISTER))
        assert Schedule.from_json([{"step": "reorder", "dim": "k"}]).steps == (Reorder("k"),)
        assert Reorder("k").to_json() == {"step": "reorder", "dim": "k"}
    assert "\n".join(printed(nest)) == GOLDEN.strip("\n")
    check_nest(nest)


@pytest.mark.parametrize(("written", "why"), [
    ((*TILES, "reorder dim=m"), "no loop over blocks of m"),
    ((*TILES, "reorder dim=n"), "no loop over blocks follows"),
    ((TILES[0], "pack operand=B", TILES[1], "reorder dim=k"), "no loop over blocks follows"),
    (("tile dim=n size=32", "tile dim=n size=16", "reorder dim=n"), "no loop over blocks"),
], ids=["absent", "innermost", "pack between", "one dim"])  # fmt: skip
def test_the_step_is_refused_where_it_has_no_meaning(written: tuple[str, ...], why: str) -> None:
    with steps.registered(Reorder), pytest.raises(ScheduleError, match=f"step 'reorder.*{why}"):
        made(MATMUL, (*written, REGISTER))


@cases(12)
@given(data=st.data())
def test_any_legal_schedule_with_the_step_is_right(data: st.DataObject, host: Target) -> None:
    problem = data.draw(problems.filter(lambda p: p.flops // 2 <= LARGEST))
    drawn = data.draw(schedules(problem, host)).steps
    exchanged = []
    for at in range(1, len(drawn)):
        for dim in loop_nest(problem, Schedule(drawn)).scheduled:
            schedule = Schedule((*drawn[:at], Reorder(dim), *drawn[at:]))
            try:
                check_legal(problem, schedule)
            except ScheduleError:
                continue
            exchanged.append(schedule)
    assume(exchanged)
    schedule = data.draw(st.sampled_from(exchanged))
    check_nest(loop_nest(problem, schedule))
    check_native(problem, schedule, host, data.draw(st.integers(0, 1)))


@pytest.mark.parametrize("levels", [1, 2])
def test_an_algorithm_is_a_step_as_any_other(levels: int, host: Target) -> None:
    problem = parse_problem("matmul:m=21,n=24,k=20,dtype=f32,bias,epilogue=relu")
    cols = host.lanes("f32")
    register = f"register rows=2 cols={cols} outer=cols"
    around = ("pack operand=B", "prefetch operand=B", "tile dim=t size=4", "pack operand=A")
    written = (f"winograd_form levels={levels}", *around, register)
    with pytest.raises(ScheduleError, match=r"no step of.*TILEWISE_EXTENSIONS names"):
        Schedule.from_json(map(step, written))
    with steps.registered(WinogradForm):
        schedule = Schedule.from_json(map(step, written))
        assert fast_algorithm(schedule.to_json()) == "winograd_form"
        assert schedule.algorithm == WinogradForm(levels)
        check_nest(loop_nest(problem, schedule))
        for seed in (0, 1):
            check_native(problem, schedule, host, seed)
        streamed = Schedule((*schedule.steps[:-1], Stream("k", 4), Register(2, cols)))
        with pytest.raises(ScheduleError, match="combined with winograd_form"):
            check_legal(problem, streamed)


def test_the_micro_kernel_serves_the_instruction_alone(host: Target) -> None:
    with instructions.registered(*FMULADDS):
        register = Register(4, host.lanes("f32"))
        found = instructions.instructions("f32", host, Form.OUTER_PRODUCT)
        named = InstructionChoice(next(one.name for one in found if one in FMULADDS))
        schedule = Schedule((Tile("n", 2 * register.cols), named, register))
        assert type(plan(SQUARE, schedule, host).kernel) is OuterProduct
        with kinds.registered(FusedTile):
            assert type(plan(SQUARE, schedule, host).kernel) is FusedTile
            assert type(plan(SQUARE, Schedule((register,)), host).kernel) is OuterProduct
            for seed in (0, 1):
                check_native(SQUARE, schedule, host, seed)
    with pytest.raises(LoweringError, match="tune again for this target"):
        plan(SQUARE, schedule, host)


def test_a_space_has_the_parameter_and_its_schedules(host: Target) -> None:
    plain = Space(SQUARE, host).parameters
    with (
        steps.registered(Reorder),
        instructions.registered(*FMULADDS),
        registry.registered(NAME, blocks, in_blocks),
    ):
        space = Space(SQUARE, host)
        assert [p.name for p in space.parameters] == [*(p.name for p in plain), NAME]
        point = {p.name: p.values[0] for p in space.parameters}
        two, three = (space.schedule(point | {NAME: count}) for count in (2, 3))
        assert isinstance(two, Schedule) and Reorder("n") in two.steps and two != three
        assert space.legal_hash(point) == two.hash and len(space.encode(point)) > 1
        assert space.holds(point) and not space.holds(point | {NAME: 7})
        convolution = parse_problem("conv2d:n=1,h=9,w=9,ci=8,co=32,kh=3,kw=3,dtype=f32")
        assert Space(convolution, host).parameter(NAME) is None
        assert space_json(str(SQUARE), host.canonical)["schedules"] == space.size
    assert Space(SQUARE, host).parameters == plain


@pytest.mark.parametrize(("name", "own"), [("tile", "tile"), ("mine", "other")])
def test_a_parameter_has_one_name_that_is_free(name: str, own: str, host: Target) -> None:
    with (
        registry.registered(name, lambda _: Parameter(own, (1, 2)), in_blocks),
        pytest.raises(SearchError, match=f"'{own}' is registered as '{name}'"),
    ):
        assert Space(SQUARE, host).parameters


def test_what_is_there_is_not_registered_again(host: Target) -> None:
    known, names, forms = dict(STEPS), list(instructions.NAMES), list(kinds.KINDS)
    best = instructions.instructions("f32", host, Form.OUTER_PRODUCT)[0]
    mine = replace(best, name=f"{best.unit}.mine")
    refused: list[AbstractContextManager[None]] = [
        steps.registered(Tile),
        steps.registered(type("Tile", (Tile,), {})),
        steps.registered(type("Divide", (Tile,), {"name": "divide"})),  # of an earlier version
        instructions.registered(best),
        instructions.registered(mine, best),
        instructions.registered(mine, replace(mine, k=2)),
        kinds.registered(OuterProduct),
        kinds.registered(type("OuterProduct", (OuterProduct,), {})),
    ]
    for one in refused:
        with pytest.raises(ValueError, match="give another"), one:
            pass
    with registry.registered(NAME, blocks, in_blocks):
        twice = registry.registered(NAME, blocks, in_blocks)
        with pytest.raises(ValueError, match="give another"), twice:
            pass
        assert Space(SQUARE, host).parameter(NAME)
    assert (known, names, forms) == (STEPS, list(instructions.NAMES), kinds.KINDS)


def test_an_extension_changes_the_generator(monkeypatch, tmp_path) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    package, module = tmp_path / "acme", tmp_path / "alone.py"
    package.mkdir()
    for file in ("__init__.py", "register.py", "step.py"):
        (package / file).touch()
    module.touch()
    hashes = [generator_hash.__wrapped__()]
    for names in ("alone", "acme.register", "acme", "alone, acme.register"):
        monkeypatch.setenv("TILEWISE_EXTENSIONS", names)
        hashes.append(generator_hash.__wrapped__())
    (package / "step.py").write_text("x = 1")
    hashes.append(generator_hash.__wrapped__())
    assert len(set(hashes)) == len(hashes) - 1 and hashes[2] == hashes[3]


PROBLEM = "matmul:m=61,n=100,k=72,dtype=f32,bias"
REGISTRATION = "tests.extension.registration"
NAMES = {one.name for one in FMULADDS}

Command = Callable[..., "subprocess.CompletedProcess[str]"]


def command_in(folder: Path) -> Command:
    """Runs a command on a database in a folder, with some extensions."""

    def run(*arguments: str, extensions: str = REGISTRATION) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "tilewise", *arguments],
            cwd=folder,
            env=child_environment(
                PYTHONPATH=python_path(Path(__file__).parents[2], folder),
                TILEWISE_DB=f"sqlite:///{folder / 'results.db'}",
                TILEWISE_EXTENSIONS=extensions,
            ),
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    return run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("extension")


@pytest.fixture(scope="module")
def command(folder: Path) -> Command:
    """Runs a command on the database of one search."""
    return command_in(folder)


def told(ran: "subprocess.CompletedProcess[str]") -> Any:
    """The JSON that a command printed."""
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.fixture(scope="module")
def tuned(command: Command) -> Any:
    """What a search of a few trials found."""
    return told(command("tune", PROBLEM, "--trials", "3", "--json"))


def steps_of(result: Any) -> dict[str, Any]:
    """The steps of a best schedule by name, and `n` and `m` for its tiles."""
    return {step["dim"] if step["step"] == "tile" else step["step"]: step for step in result}


@pytest.mark.full
def test_it_is_tuned_and_proven(command: Command, tuned: Any) -> None:
    steps = steps_of(tuned["best"]["steps"])
    assert tuned["trials"]["timed"] + tuned["trials"]["pruned"] == 3
    assert steps["reorder"] == {"step": "reorder", "dim": "n"}
    assert tuned["best"]["instruction"] == steps["instruction"]["op"] in NAMES
    assert tuned["proof"]["applied"] and tuned["proof"]["executed"]
    assert tuned["proof"]["max_error"] <= tuned["proof"]["tolerance"]
    trials = told(command("trials", PROBLEM, "--format", "json", extensions=""))
    assert {trial["params"]["blocks"] for trial in trials} <= {2, 3}
    for trial in trials:
        found, count = steps_of(trial["steps"]), trial["params"]["blocks"]
        assert found["n"]["size"] == count * found["register"]["cols"]
        assert found["m"]["size"] == count * found["register"]["rows"]


@pytest.mark.full
def test_script_and_picture_show_exchanged_loops(command, tuned, folder) -> None:
    script = command("script", PROBLEM, extensions="").stdout
    loops = re.findall(r"^//\s+for (\w+) step", script, re.MULTILINE)
    assert loops[:2] == ["m", "n"] and "// reorder dim=n" in script
    assert command("plot", PROBLEM, "--kind", "nest", "-o", "nest.svg").returncode == 0
    drawn = re.findall(r">for (\w) in steps of (\d+)<", (folder / "nest.svg").read_text())
    steps = steps_of(tuned["best"]["steps"])
    assert drawn[:2] == [(dim, str(steps[dim]["size"])) for dim in ("m", "n")]


@pytest.mark.full
def test_the_micro_kernel_is_used_and_exported(command: Command, tuned: Any, folder: Path) -> None:
    unroll = steps_of(tuned["best"]["steps"]).get("unroll", {"factor": 1})["factor"]
    assert told(command("asm", PROBLEM, "--json"))["steps"] == 2 * unroll
    assert command("kernel", PROBLEM, "-o", "kernel.py").returncode == 0
    text = (folder / "kernel.py").read_text()
    assert "llvm.fmuladd" in text and "llvm.fma." not in text
    ran = subprocess.run(
        [sys.executable, "kernel.py"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert ran.stdout.startswith(f"OK {PROBLEM}"), ran.stderr
    proof = told(command("kernel", PROBLEM, "--format", "object", "--json"))["proof"]
    assert proof["max_error"] <= proof["tolerance"]


@pytest.mark.full
def test_without_the_extension_it_is_shown_and_not_run(command: Command, tuned: Any) -> None:
    before = told(command("trials", PROBLEM, "--format", "json", extensions=""))
    shown = told(command("show", PROBLEM, "--json", extensions=""))
    assert shown["best"]["steps"] == tuned["best"]["steps"] and shown["stale"]
    for refused in (("kernel", PROBLEM), ("plot", PROBLEM, "--kind", "nest", "-o", "x.svg")):
        ran = command(*refused, extensions="")
        assert (ran.returncode, ran.stdout) == (2, "") and ran.stderr.count("\n") == 1
        assert "'reorder'" in ran.stderr and "TILEWISE_EXTENSIONS names modules" in ran.stderr
    other = told(command("tune", PROBLEM, "--trials", "1", "--json", extensions=""))
    assert "reorder" not in steps_of(other["best"]["steps"]) and other["proof"]["executed"]
    after = told(command("trials", PROBLEM, "--format", "json", extensions=""))
    assert [trial for trial in after if trial in before] == before and len(after) > len(before)
    assert told(command("show", PROBLEM, "--json"))["best"] == tuned["best"]


BROKEN = {
    "nothing": "ModuleNotFoundError: No module named 'nothing'",
    "wrong": "SyntaxError: invalid syntax",
    "raises": "ZeroDivisionError: division by zero",
    "doubled": "ValueError: step 'tile' is registered as Tile; give another name",
    f"{REGISTRATION},nothing": "ModuleNotFoundError: No module named 'nothing'",
}
MODULES = {
    "wrong": "this is no Python",
    "raises": "1 / 0",
    "doubled": """
from tilewise.kernels.steps import Tile, register_step
register_step(type("Mine", (Tile,), {}))
""",
}


@pytest.mark.parametrize("extensions", some(BROKEN, of=5))
def test_a_broken_extension_is_reported_in_one_line(extensions: str, tmp_path: Path) -> None:
    for name, text in MODULES.items():
        (tmp_path / f"{name}.py").write_text(text)
    ran = command_in(tmp_path)("tune", PROBLEM, "--trials", "9", extensions=extensions)
    assert (ran.returncode, ran.stdout) == (2, "")
    broken = extensions.rpartition(",")[2]
    begin = f"tilewise: TILEWISE_EXTENSIONS: module '{broken}' cannot be imported"
    assert ran.stderr.startswith(begin) and ran.stderr.count("\n") == 1
    assert BROKEN[extensions] in ran.stderr
    assert not (tmp_path / "results.db").exists()
