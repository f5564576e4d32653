"""Registration for a while: what is added works, and leaves the registries as they were."""

from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.cases import cases
from tests.extension.blocks import NAME, blocks, in_blocks
from tests.extension.fmuladd import FMULADDS
from tests.extension.fused_tile import FusedTile
from tests.extension.reorder import Reorder
from tests.extension.winograd_form import WinogradForm
from tests.kernels.native_case import check as check_native
from tests.kernels.nest.test_steps import LARGEST, MATMUL, REGISTER, made, step
from tests.kernels.nest.test_steps import check as check_nest
from tests.kernels.strategies import problems, schedules
from tilewise.kernels import instructions, steps
from tilewise.kernels.errors import LoweringError, ScheduleError
from tilewise.kernels.instructions import Form
from tilewise.kernels.mlir.proof.prove import prove
from tilewise.kernels.native.microkernels import kinds
from tilewise.kernels.native.microkernels.outer_product import OuterProduct
from tilewise.kernels.native.plan import plan
from tilewise.kernels.nest import printed
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import (
    InstructionChoice,
    Register,
    Schedule,
    Stream,
    Tile,
    check_legal,
    fast_algorithm,
    loop_nest,
)
from tilewise.kernels.steps import STEPS
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


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ((*TILES, "reorder dim=m"), "no loop over blocks of m"),
        ((*TILES, "reorder dim=n"), "no loop over blocks follows"),
        ((TILES[0], "pack operand=B", TILES[1], "reorder dim=k"), "no loop over blocks follows"),
        (("tile dim=n size=32", "tile dim=n size=16", "reorder dim=n"), "no loop over blocks"),
    ],
    ids=["absent", "innermost", "pack between", "one dim"],
)
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


def test_a_script_with_the_step_is_proven() -> None:
    written = (*TILES, "reorder dim=k", "pack operand=B", REGISTER)
    with steps.registered(Reorder):
        proof = prove(parse_problem(MATMUL), Schedule.from_json(map(step, written)))
    assert proof.ok, proof.message


@pytest.mark.parametrize("levels", [1, 2])
def test_an_algorithm_is_a_step_as_any_other(levels: int, host: Target) -> None:
    problem = parse_problem("matmul:m=21,n=24,k=20,dtype=f32,bias,epilogue=relu")
    cols = host.lanes("f32")
    register = f"register rows=2 cols={cols} outer=cols"
    around = ("pack operand=B", "prefetch operand=B", "tile dim=t size=4", "pack operand=A")
    written = (f"winograd_form levels={levels}", *around, register)
    with pytest.raises(ScheduleError, match="no step of a schedule"):
        Schedule.from_json(map(step, written))
    with steps.registered(WinogradForm):
        schedule = Schedule.from_json(map(step, written))
        assert fast_algorithm(schedule.to_json()) == "winograd_form"
        assert schedule.algorithm == WinogradForm(levels)
        check_nest(loop_nest(problem, schedule))
        check_native(problem, schedule, host, 0)
        check_native(problem, schedule, host, 1)
        with pytest.raises(ScheduleError, match="combined with winograd_form"):
            check_legal(
                problem, Schedule((*schedule.steps[:-1], Stream("k", 4), Register(2, cols)))
            )


def fmuladd(host: Target) -> str:
    """The extension's instruction on a target."""
    found = instructions.instructions("f32", host, Form.OUTER_PRODUCT)
    return next(one.name for one in found if one in FMULADDS)


def test_the_micro_kernel_serves_the_instruction_alone(host: Target) -> None:
    with instructions.registered(*FMULADDS):
        register = Register(4, host.lanes("f32"))
        schedule = Schedule(
            (Tile("n", 2 * register.cols), InstructionChoice(fmuladd(host)), register)
        )
        assert type(plan(SQUARE, schedule, host).kernel) is OuterProduct
        with kinds.registered(FusedTile):
            assert type(plan(SQUARE, schedule, host).kernel) is FusedTile
            assert type(plan(SQUARE, Schedule((register,)), host).kernel) is OuterProduct
            check_native(SQUARE, schedule, host, 0)
            check_native(SQUARE, schedule, host, 1)
    with pytest.raises(LoweringError, match="tune again for this target"):
        plan(SQUARE, schedule, host)


def everything() -> ExitStack:
    """The whole extension, for a while."""
    stack = ExitStack()
    stack.enter_context(steps.registered(Reorder))
    stack.enter_context(instructions.registered(*FMULADDS))
    stack.enter_context(registry.registered(NAME, blocks, in_blocks))
    return stack


def test_a_space_has_the_parameter_and_its_schedules(host: Target) -> None:
    plain = Space(SQUARE, host).parameters
    with everything():
        space = Space(SQUARE, host)
        assert [p.name for p in space.parameters] == [*(p.name for p in plain), NAME]
        point = {p.name: p.values[0] for p in space.parameters}
        two, three = (space.schedule(point | {NAME: count}) for count in (2, 3))
        assert isinstance(two, Schedule) and Reorder("n") in two.steps and two != three
        assert space.legal_hash(point) == two.hash and len(space.encode(point)) > 1
        assert space.holds(point) and not space.holds(point | {NAME: 7})
        convolution = parse_problem("conv2d:n=1,h=9,w=9,ci=8,co=32,kh=3,kw=3,dtype=f32")
        assert Space(convolution, host).parameter(NAME) is None
        assert space_json(str(SQUARE), host.canonical) is None, "values may have no effect"
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
    again = type("Tile", (Tile,), {})
    retired = type("Divide", (Tile,), {"name": "divide"})
    mine = replace(best, name=f"{best.unit}.mine")
    refused: list[AbstractContextManager[None]] = [
        steps.registered(Tile),
        steps.registered(again),
        steps.registered(retired),
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


def test_a_step_that_has_gone_is_named() -> None:
    stored = [{"step": "reorder", "dim": "n"}]
    with steps.registered(Reorder):
        assert Schedule.from_json(stored).to_json() == stored
    with pytest.raises(ScheduleError, match=r"'reorder'.*TILEWISE_EXTENSIONS names modules"):
        Schedule.from_json(stored)


def test_results_of_an_extension_are_of_another_generator(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
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
