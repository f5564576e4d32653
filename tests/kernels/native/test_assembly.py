"""The inner loop's counts on register tiles whose code is known, and on written assembly."""

from dataclasses import replace

import llvmlite.binding as llvm
import pytest

from tilewise.kernels.arithmetic import arithmetic_of
from tilewise.kernels.instructions.declaration import DECLARED
from tilewise.kernels.native.assembly import (
    bound,
    count_other,
    count_x86,
    hottest_loop,
    inner_loop,
    parse,
    render,
)
from tilewise.kernels.native.microkernels.outer_product_code import OuterProductSpec
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Pack, Register, Schedule, Unroll
from tilewise.kernels.target import Target

SQUARE = parse_problem("matmul:m=64,n=64,k=64,dtype=f32")
SPEC = OuterProductSpec(
    how=arithmetic_of(SQUARE, Target("any", features=frozenset({"fma"}), vector_bytes=64)),
    rows=8,
    vectors=3,
    lanes=16,
    unroll=1,
    a_row=528,
    a_step=1,
    b_row=48,
    b_packed=True,
    taps=False,
)
needs_x86 = pytest.mark.skipif(
    not llvm.get_process_triple().startswith("x86_64"),
    reason="the counts expected are of x86-64 instructions",
)


def needs_registers(host: Target, count: int) -> None:
    if host.vector_registers < count:
        held = host.vector_registers
        pytest.skip(f"the tile needs {count} vector registers and {host.cpu} has {held}")


def loop_of(host: Target, dtype: str, rows: int, vectors: int, unroll: int):
    problem = parse_problem(f"matmul:m=64,n=512,k=256,dtype={dtype}")
    register = Register(rows, vectors * host.lanes(dtype))
    schedule = Schedule((Pack("B"), Pack("A"), register, Unroll(unroll)))
    return inner_loop(problem, schedule, host)


@needs_x86
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("unroll", [1, 4])
def test_a_tile_that_fits_the_registers(host: Target, dtype: str, unroll: int) -> None:
    needs_registers(host, 32)
    found = loop_of(host, dtype, 8, 3, unroll)
    counts = found.counts
    assert found.steps == unroll
    assert counts.multiply_adds == 24 * unroll
    assert counts.vector_loads == 3 * unroll
    assert counts.broadcasts == 8 * unroll
    assert (counts.stack_references, counts.stores) == (0, 0)
    assert counts.chain == unroll
    assert counts.vector_bytes == 64
    assert found.text.count("vfmadd") == counts.multiply_adds
    assert "every accumulator stays in its register" in render(found)


@needs_x86
@pytest.mark.parametrize(("rows", "vectors"), [(16, 2), (14, 4)])
def test_a_tile_that_does_not_fit_spills(host: Target, rows: int, vectors: int) -> None:
    found = loop_of(host, "f32", rows, vectors, 1)
    assert found.counts.stack_references > 0
    assert found.counts.vector_spills > 0
    assert "accumulators spill" in render(found)
    assert found.to_json()["spills"] is True


def listing(*body: str) -> str:
    """A function with an outer loop, and `body` as its inner one."""
    lines = ["tilewise_kernel_full_0:", ".LBB0_1:", "\tvfmadd231ps\t%zmm1, %zmm2, %zmm3"]
    lines += [".LBB0_2:", *(f"\t{line}" for line in body), "\tjl\t.LBB0_2"]
    lines += ["\tcmpq\t%rax, %rcx", "\tjne\t.LBB0_1", ".Lfunc_end0:"]
    return "\n".join(lines)


def test_counts_of_a_written_loop() -> None:
    text = listing(
        "vmovups\t(%rsi), %zmm0",
        "vfmadd231ps\t64(%rsi), %zmm9, %zmm1",
        "vfmadd231ps\t-4(%rbp,%rax,4){1to16}, %zmm0, %zmm2",
        "vbroadcastss\t(%rdi), %zmm8",
        "vmovups\t%zmm7, 128(%rsp)",
        "addq\t8(%rsp), %rsi",
        "leaq\t16(%rsp), %rdx",
        "prefetcht0\t512(%rsi)",
        "cmpq\t%rax, (%rdx)",
    )
    found = hottest_loop(text, SPEC, "znver5", is_x86=True)
    counts = found.counts
    assert counts.multiply_adds == 2
    assert counts.vector_loads == 2
    assert counts.broadcasts == 2
    assert counts.other_loads == 3
    assert counts.stores == 1
    assert (counts.stack_references, counts.vector_spills) == (2, 1)
    assert counts.instructions == 10
    assert found.text.splitlines()[0] == ".LBB0_2:"


def test_rbp_is_the_stack_only_where_it_is_the_frame_pointer() -> None:
    body = "vfmadd231ps\t8(%rbp), %zmm0, %zmm2"
    plain = hottest_loop(listing(body), SPEC, "znver5", is_x86=True)
    assert plain.counts.stack_references == 0
    framed = listing(body).replace(".LBB0_1:", "\tmovq\t%rsp, %rbp\n.LBB0_1:")
    assert hottest_loop(framed, SPEC, "znver5", is_x86=True).counts.stack_references == 1


@pytest.mark.parametrize(
    ("name", "declared"),
    [
        *((name, name) for name in ("vdpbf16ps", "vpdpbusd", "vpmaddwd")),
        *(("vfmadd213pd", "fma.f64"), ("vfmadd231ph", "fma.f32")),
        *(("vpmulld", "mul.i32"), ("vmulps", "mul.f32")),
    ],
)
def test_every_kind_of_multiply_add_counts(name: str, declared: str) -> None:
    parsed = parse(f"\t{name}\t%zmm1, %zmm2, %zmm3")
    (one,) = (one for one in DECLARED if one.name == f"x86.avx512.{declared}")
    assert parsed is not None
    assert count_x86([parsed], one, uses_frame_pointer=False).multiply_adds == 1


@pytest.mark.parametrize(
    ("cpu", "multiply", "loads"),
    [("znver5", 12.0, 5.5), ("znver4", 24.0, 7.0), ("skylake-avx512", 12.0, 5.5)],
)
def test_the_bound_follows_the_core(cpu: str, multiply: float, loads: float) -> None:
    lines = ["vmovups\t(%rsi), %zmm0"] * 3 + ["vbroadcastss\t(%rdi), %zmm1"] * 8
    lines += [f"vfmadd231ps\t%zmm0, %zmm1, %zmm{i + 2}" for i in range(24)]
    parsed = [i for i in map(parse, lines) if i is not None]
    found = bound(count_x86(parsed, SPEC.how.instruction, uses_frame_pointer=False), SPEC, cpu)
    assert found.declared
    assert found.cycles["multiply-adds"] == multiply
    assert found.cycles["loads"] == loads
    assert (found.binds, found.peak_share) == ("multiply-adds", 1.0)


def test_other_processors_get_counts_without_a_bound() -> None:
    lines = ["ld1r\t{v1.4s}, [x0]", "ldr\tq0, [x1], #16", "fmla\tv2.4s, v0.4s, v1.4s"]
    lines += ["str\tq3, [sp, #16]", "b.lt\t.LBB0_1"]
    neon = replace(SPEC, how=arithmetic_of(SQUARE, Target("any", features=frozenset({"neon"}))))
    counts = count_other([i for i in map(parse, lines) if i is not None], neon.how.instruction)
    assert (counts.multiply_adds, counts.broadcasts, counts.stores) == (1, 1, 1)
    assert (counts.vector_loads, counts.stack_references, counts.instructions) == (1, 1, 5)
    text = "\n".join(["tilewise_kernel_full_0:", ".LBB0_1:", *(f"\t{line}" for line in lines)])
    found = hottest_loop(text, neon, "neoverse-v2", is_x86=False)
    assert found.bound is None
    assert "neoverse-v2 is not x86" in render(found)


@pytest.mark.parametrize(
    ("cpu", "cycles", "share"), [("znver5", 1.0, 1.0), ("emeraldrapids", 4.0, 0.5)]
)
def test_a_slow_instruction_is_bound_to_its_share_of_the_peak(
    cpu: str, cycles: float, share: float
) -> None:
    target = Target("any", features=frozenset({"avx512bf16"}), vector_bytes=64)
    one = parse("\tvdpbf16ps\t%zmm0, %zmm1, %zmm2")
    assert one is not None
    how = arithmetic_of(parse_problem("matmul:m=64,n=64,k=64,dtype=bf16"), target)
    counts = count_x86([one, one], how.instruction, uses_frame_pointer=False)
    found = bound(counts, replace(SPEC, how=how), cpu)
    assert found.cycles["multiply-adds"] == cycles
    assert found.peak_share == share
