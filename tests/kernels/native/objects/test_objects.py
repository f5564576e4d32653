"""Objects of any problem and schedule: right, within their memory, by parts, and refusing."""

import llvmlite.binding as llvm
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import cases
from tests.kernels.native import test_winograd
from tests.kernels.native.objects.object_case import check_object
from tests.kernels.native_case import TARGETS
from tests.kernels.strategies import can_split, is_legal, matmuls, problems, schedules
from tilewise.kernels.errors import LoweringError
from tilewise.kernels.native.objects.make import make_object
from tilewise.kernels.native.objects.module import compiled_again, machine
from tilewise.kernels.native.objects.proof.calls import LoadedObject
from tilewise.kernels.native.objects.proof.checks import ObjectTrial
from tilewise.kernels.problem import Matmul, Problem, parse_problem
from tilewise.kernels.schedule import (
    Pack,
    Parallel,
    Register,
    Schedule,
    Split,
    Step,
    Stream,
    Sweep,
    Tile,
    Unroll,
)
from tilewise.kernels.target import Target


def needs_a_library(problem: Problem, target: Target) -> bool:
    """Whether halves are converted, or scaled sums rounded, by functions that no object has."""
    has_halves = "f16" in (problem.dtype, problem.out)
    return (has_halves and "f16c" not in target.features) or (
        bool(problem.requant) and target.features.isdisjoint(("sse4.1", "avx2"))
    )


@pytest.mark.timeout(900)
@cases(45, short=8)
@given(st.data())
def test_any_problem_with_any_legal_schedule(data: st.DataObject) -> None:
    problem = data.draw(problems)
    target = data.draw(st.sampled_from(TARGETS))
    schedule = data.draw(schedules(problem, target))
    if needs_a_library(problem, target):
        with pytest.raises(LoweringError, match="more extensions"):
            make_object(problem, schedule, target)
        return
    check_object(problem, schedule, target, data.draw(st.integers(0, 1000)))


@pytest.mark.full
@pytest.mark.timeout(900)
@cases(16)
@given(st.data())
def test_any_matmul_with_any_split_of_its_reduction(data: st.DataObject) -> None:
    problem = data.draw(
        matmuls.filter(lambda one: can_split(one) and "f16" not in (one.dtype, one.out))
    )
    target = data.draw(st.sampled_from(TARGETS))
    check_object(problem, data.draw(schedules(problem, target, splits=True)), target, 3)


@pytest.mark.full
@pytest.mark.timeout(900)
@cases(16)
@given(st.data())
def test_any_winograd_convolution(data: st.DataObject) -> None:
    problem = data.draw(test_winograd.convolutions())
    target = data.draw(st.sampled_from(TARGETS))
    schedule = data.draw(test_winograd.schedules(problem, target))
    if is_legal(problem, schedule):
        check_object(problem, schedule, target, 5)


def test_groups_wider_than_a_register_have_sums_of_integers() -> None:
    """Of 128-bit vectors: LLVM ended the process over an operand that no register holds."""
    problem = parse_problem("conv2d:n=1,h=4,w=5,ci=6,co=16,kh=2,kw=2,groups=2,dtype=i8")
    check_object(problem, Schedule((Register(2, 16),)), TARGETS[-1], 3)


@pytest.mark.full
@pytest.mark.parametrize("parts", [1, 2])
def test_a_sweep_has_its_sums_between_chunks_in_the_scratch(parts: int, host: Target) -> None:
    problem = Matmul(m=5, n=260, k=40, dtype="i8", bias=True)
    divided = (Parallel("n", parts),) if parts > 1 else ()
    steps = (Stream("k", 16), Register(2, 4 * host.lanes("i8"), "rows"), Sweep("n"))
    schedule = Schedule((*divided, *steps))
    assert make_object(problem, schedule, host).interface.scratch_bytes
    check_object(problem, schedule, host, 3)


def goto(target: Target, *before: Parallel) -> Schedule:
    steps = (Tile("n", 32), Pack("B"), Tile("m", 16), Pack("A"))
    return Schedule((*before, *steps, Register(4, target.lanes("f32")), Unroll(2)))


def test_the_same_schedule_makes_the_same_bytes(host: Target) -> None:
    problem = Matmul(m=33, n=65, k=47, dtype="f32", bias=True)
    made = [make_object(problem, goto(host), host) for _ in range(2)]
    assert made[0] == made[1]
    assert make_object(problem, Schedule((Register(4, 16),)), host).object != made[0].object


def test_bitcode_stays_right_when_a_compiler_works_on_it(host: Target) -> None:
    """And without that it is the object; functions for cut tiles are still their own."""
    problem = Matmul(m=33, n=65, k=47, dtype="f32", bias=True, epilogue="relu")
    schedule = goto(host, Parallel("m", 3))
    made = make_object(problem, schedule, host)
    again = machine(made.features).emit_object(llvm.parse_bitcode(made.bitcode))
    assert bytes(again) == made.object
    loaded = LoadedObject(made.interface, compiled_again(made.bitcode, made.features))
    for check in ObjectTrial.of(problem, schedule, loaded, 6).checks():
        check()


def test_no_text_of_this_machine_is_in_an_object(host: Target) -> None:
    """What is told of the processor is its extensions; no paths, no name but the symbols'."""
    made = make_object(Matmul(m=5, n=16, k=3, dtype="f32"), Schedule((Register(5, 16),)), host)
    bare = made.object.replace(made.interface.name.encode(), b"")
    for told in (host.cpu.encode(), b"/home", b"/tmp", b"LLVM"):
        assert told not in bare


def test_scratch_is_what_the_schedule_packs(host: Target) -> None:
    problem = Matmul(m=33, n=65, k=47, dtype="f32")
    assert make_object(problem, Schedule((Register(4, 16),)), host).interface.scratch_bytes == 0
    whole = make_object(problem, goto(host), host).interface
    parts = make_object(problem, goto(host, Parallel("m", 3)), host).interface
    assert 0 < whole.scratch_bytes < parts.scratch_bytes and parts.parts == 3


CONSTANT: dict[str, tuple[Step, ...]] = {
    "matmul:m=5,n=33,k=17,dtype=f32": (Pack("B"),),
    "matmul:m=5,n=33,k=17,dtype=f64": (),
    "conv2d:n=1,h=7,w=5,ci=3,co=5,kh=3,kw=3,layout=nchw_fchw,dtype=i8": (Pack("B"), Pack("A")),
    "conv2d:n=1,h=7,w=5,ci=9,co=9,kh=3,kw=3,groups=9,dtype=f32": (),
    "matmul:m=5,n=33,k=81,dtype=f32,b=i4,group=32,scale=f16,zero_b=u4": (Pack("B"), Pack("A")),
    "matmul:m=5,n=33,k=17,dtype=bf16,b=i8,group=k,transpose_b": (Pack("B"), Pack("A")),
    "matmul:m=9,n=40,k=33,dtype=u8,b=i8,zero=ab": (Pack("B"), Pack("A")),
    "matmul:m=9,n=40,k=33,dtype=i8,zero=b": (Pack("B"), Pack("A")),
}


@pytest.mark.parametrize("text", CONSTANT)
def test_constant_weights_are_made_ready_whether_or_not_they_are_packed(
    text: str, host: Target
) -> None:
    """A program calls the same functions, whatever the next search finds."""
    problem = parse_problem(f"{text},weights=constant")
    tile = Register(1, host.lanes(problem.element.name))
    made = check_object(problem, Schedule((*CONSTANT[text], tile)), host, 2)
    assert made.interface.packed_bytes % 64 == 0 and "_prepare" in made.header


def test_a_split_reduction_reads_in_place(host: Target) -> None:
    problem = parse_problem("matmul:m=3,n=1,k=523,dtype=bf16,bias,epilogue=relu")
    made = check_object(problem, Schedule((Register(3, 1), Split("k", 16), Unroll(2))), host, 4)
    assert made.interface.scratch_bytes == 0
