"""Code of kernels: what macro-kernels share and fetch, counts of inner loops, loops of limits."""

import ast
import time
from dataclasses import replace
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

from tilewise.kernels.arithmetic import arithmetic_of
from tilewise.kernels.instructions.declaration import DECLARED
from tilewise.kernels.native import assembly, microbench
from tilewise.kernels.native.ir.vectors import LINE_BYTES
from tilewise.kernels.native.microbench import multiplier, reader
from tilewise.kernels.native.microkernels.microkernel import Use, use_of
from tilewise.kernels.native.microkernels.outer_product_code import OuterProductSpec
from tilewise.kernels.native.plan import plan
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Schedule, loop_nest
from tilewise.kernels.steps import Pack, Parallel, Prefetch, Register, Step, Stream, Tile, Unroll
from tilewise.kernels.target import Target, detect

LARGE = parse_problem("matmul:m=200,n=300,k=100,dtype=f32")
TILE = Register(6, 64)


def source(host: Target, *steps: Step, shares: bool = True) -> str:
    return plan(LARGE, Schedule((*steps, TILE)), host, shares_code=shares).source.text


def test_schedules_that_differ_in_blocks_share_a_driver(host: Target) -> None:
    blocked = source(host, Tile("n", 128), Stream("k", 50), Pack("B"), Tile("m", 60))
    assert blocked == source(host, Pack("B")) == source(host, Stream("k", 20), Pack("B"))
    assert blocked != source(host)
    assert blocked != source(host, Pack("B"), shares=False), "what users export has no such loop"


def test_one_that_prefetches_looks_at_the_loops_that_there_are(host: Target) -> None:
    steps = (Tile("n", 128), Pack("B"), Prefetch("B"))
    assert source(host, *steps) == source(host, *steps, shares=False)


LANES = 16


def use(text: str, *steps: object) -> Use:
    nest = loop_nest(parse_problem(f"matmul:{text},dtype=f32"), Schedule(steps))
    return use_of(nest, LANES, detect())


@pytest.mark.parametrize(("text", "steps", "seldom"), [
    ("m=60,n=64,k=9", (Register(6, 64),), {"edge", "filling"}),  # none at all
    ("m=64,n=64,k=9", (Register(6, 64),), {"edge", "filling"}),  # 1 tile of 11
    ("m=52,n=64,k=9", (Register(6, 64),), {"filling"}),  # 1 of 9
    ("m=600,n=320,k=9", (Register(6, 48),), {"filling"}),  # 32 columns are left: 1 of 7
    ("m=600,n=304,k=9", (Register(6, 48),), {"edge", "filling"}),  # 16: a third of a tile of 7
    ("m=600,n=16,k=9", (Register(6, 48),), {"filling"}),  # narrow, but all there is
    ("m=60,n=64,k=9", (Pack("B"), Register(6, 64)), {"edge", "filling"}),
    ("m=54,n=64,k=9", (Pack("B"), Register(6, 64)), {"edge"}),
    ("m=60,n=640,k=9", (Stream("k", 3), Pack("B"), Register(6, 64)), {"edge", "filling"}),
    # Packed anew for each block of rows.
    ("m=600,n=64,k=9", (Tile("m", 60), Pack("B"), Register(6, 64)), {"edge", "filling"}),
    ("m=600,n=64,k=9", (Tile("m", 54), Pack("B"), Register(6, 64)), {"edge"}),
    ("m=60,n=760,k=9", (Parallel("n", 12), Register(6, 64)), set()),  # the last has no other
])  # fmt: skip
def test_seldom_is_up_to_a_tenth_of_the_time(text: str, steps: tuple, seldom: set[str]) -> None:
    assert use(text, *steps).rare == seldom


B = 1 << 40


class OfBlocks(ast.NodeTransformer):
    """A macro-kernel that says when it comes to another block of B."""

    def visit_Assign(self, node: ast.Assign) -> list[ast.stmt]:
        begins = ast.unparse(node).startswith("fetching = min")
        return [node, *(ast.parse("begin_block()").body if begins else [])]


def asked(text: str, steps: tuple[Step, ...], target: Target) -> tuple[list[list[int]], list[bool]]:
    """The addresses fetched during each block of B, sorted, and whether each call fetches.

    The macro-kernel runs in Python, on a micro-kernel that only notes its arguments.
    """
    planned = plan(parse_problem(text), Schedule(steps), target)
    blocks: list[list[int]] = []
    calls: list[bool] = []

    def call_address(_function: int, *given: int) -> None:
        *_, depth, _flags, _rows, _cols, _beside, ahead, step, _zero = given
        tap_rows, tap_cols = given[8:10]
        if step:
            iterations = tap_rows * tap_cols * (depth // planned.spec.unroll)
            lines = range(0, LINE_BYTES * planned.spec.prefetched, LINE_BYTES)
            blocks[-1].extend(ahead + i * step + at for i in range(iterations) for at in lines)
        calls.append(bool(step))

    names: dict[str, Any] = {
        "njit": lambda *_, **__: lambda function: function,
        "word": lambda given, index: given[index],
        **dict.fromkeys(("add_word", "pack_b", "pack_image"), lambda *_: None),
        "call_address": call_address,
        "begin_block": lambda: blocks.append([]),
    }
    macro_kernel = OfBlocks().visit(ast.parse(planned.source.text))
    macro_kernel.body = [node for node in macro_kernel.body if not isinstance(node, ast.ImportFrom)]
    exec(compile(ast.fix_missing_locations(macro_kernel), "macro_kernel", "exec"), names)
    sizes = dict.fromkeys(planned.source.parameters, 0) | planned.sizes | {"b": B}
    names["macro_kernel"]([sizes[name] for name in planned.source.parameters])
    return [sorted(block) for block in blocks], calls


def rows(first: int, count: int, row_bytes: int, col_bytes: int, panels: int) -> list[int]:
    """Addresses of the lines of a block's panels, from a byte of B on, sorted."""
    return sorted(
        B + first + panel * col_bytes + row * row_bytes + at
        for panel in range(panels)
        for row in range(count)
        for at in range(0, col_bytes, LINE_BYTES)
    )


def test_the_next_chunk_is_fetched_and_then_the_next_columns(host: Target) -> None:
    cols = 2 * host.lanes("f32")
    n = 4 * cols
    steps = (Tile("n", 2 * cols), Stream("k", 24), Pack("B"), Prefetch("B"), Register(4, cols))
    found, _ = asked(f"matmul:m=8,n={n},k=48,dtype=f32", steps, host)
    chunk, block = 24 * n * 4, 2 * cols * 4
    nexts = [chunk, block, block + chunk]
    expected = [rows(first, 24, n * 4, cols * 4, 2) for first in nexts]
    assert found[:-1] == expected
    assert len(found) == 4


@pytest.mark.parametrize("packs", [(Pack("B"),), ()])
@pytest.mark.parametrize("outer", ["cols", "rows"])
def test_last_calls_of_a_block_fetch_the_next(packs, outer, host) -> None:
    """Two of the twelve for each panel; those of the first block cannot know which are the last."""
    cols = 2 * host.lanes("f32")
    lines = -(-cols * 4 // LINE_BYTES)
    steps = (Tile("n", 2 * cols), *packs, Prefetch("B"), Tile("m", 24), Register(4, cols, outer))
    found, fetching = asked(f"matmul:m=48,n={6 * cols},k=10,dtype=f32", steps, host)
    blocks = [rows(2 * at * cols * 4, 10, 6 * cols * 4, cols * 4, 2) for at in (1, 2)]
    assert found[:2] == blocks
    late = [False] * (24 - 2 * lines) + [True] * 2 * lines
    assert fetching[:48] == [*late[::-1], *late]


SQUARE = parse_problem("matmul:m=64,n=64,k=64,dtype=f32")
SIZES = {"rows": 8, "vectors": 3, "lanes": 16, "unroll": 1, "a_row": 528, "a_step": 1, "b_row": 48}
HOW = arithmetic_of(SQUARE, Target("any", features=frozenset({"fma"}), vector_bytes=64))
SPEC = OuterProductSpec(how=HOW, b_packed=True, taps=False, **SIZES)
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
    return assembly.inner_loop(problem, schedule, host)


@needs_x86
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("unroll", [1, 4])
def test_a_tile_that_fits_the_registers(host: Target, dtype: str, unroll: int) -> None:
    needs_registers(host, 32)
    found = loop_of(host, dtype, 8, 3, unroll)
    counts = found.counts
    per_step = counts.multiply_adds, counts.vector_loads, counts.broadcasts, counts.chain
    assert found.steps == unroll and per_step == (24 * unroll, 3 * unroll, 8 * unroll, unroll)
    assert (counts.stack_references, counts.stores, counts.vector_bytes) == (0, 0, 64)
    assert found.text.count("vfmadd") == counts.multiply_adds
    assert "every accumulator stays in its register" in assembly.render(found)


@needs_x86
@pytest.mark.parametrize(("rows", "vectors"), [(16, 2), (14, 4)])
def test_a_tile_that_does_not_fit_spills(host: Target, rows: int, vectors: int) -> None:
    found = loop_of(host, "f32", rows, vectors, 1)
    assert found.counts.stack_references > 0 and found.counts.vector_spills > 0
    assert "accumulators spill" in assembly.render(found)
    assert found.to_json()["spills"] is True


def listing(*body: str) -> str:
    """A function with an outer loop, and `body` as its inner one."""
    lines = ["tilewise_kernel_full_0:", ".LBB0_1:", "\tvfmadd231ps\t%zmm1, %zmm2, %zmm3"]
    lines += [".LBB0_2:", *(f"\t{line}" for line in body), "\tjl\t.LBB0_2"]
    lines += ["\tcmpq\t%rax, %rcx", "\tjne\t.LBB0_1", ".Lfunc_end0:"]
    return "\n".join(lines)


def test_counts_of_a_written_loop() -> None:
    text = listing(
        "vmovups\t(%rsi), %zmm0", "vfmadd231ps\t64(%rsi), %zmm9, %zmm1",
        "vfmadd231ps\t-4(%rbp,%rax,4){1to16}, %zmm0, %zmm2", "vbroadcastss\t(%rdi), %zmm8",
        "vmovups\t%zmm7, 128(%rsp)", "addq\t8(%rsp), %rsi", "leaq\t16(%rsp), %rdx",
        "prefetcht0\t512(%rsi)", "cmpq\t%rax, (%rdx)",
    )  # fmt: skip
    found = assembly.hottest_loop(text, SPEC, "znver5", is_x86=True)
    counts = found.counts
    assert (counts.multiply_adds, counts.vector_loads, counts.broadcasts) == (2, 2, 2)
    assert (counts.other_loads, counts.stores, counts.instructions) == (3, 1, 10)
    assert (counts.stack_references, counts.vector_spills) == (2, 1)
    assert found.text.splitlines()[0] == ".LBB0_2:"


def test_rbp_is_the_stack_only_where_it_is_the_frame_pointer() -> None:
    body = "vfmadd231ps\t8(%rbp), %zmm0, %zmm2"
    plain = assembly.hottest_loop(listing(body), SPEC, "znver5", is_x86=True)
    assert plain.counts.stack_references == 0
    framed = listing(body).replace(".LBB0_1:", "\tmovq\t%rsp, %rbp\n.LBB0_1:")
    assert assembly.hottest_loop(framed, SPEC, "znver5", is_x86=True).counts.stack_references == 1


@pytest.mark.parametrize(("name", "declared"), [
    *((name, name) for name in ("vdpbf16ps", "vpdpbusd", "vpmaddwd")),
    *(("vfmadd213pd", "fma.f64"), ("vfmadd231ph", "fma.f32")),
    *(("vpmulld", "mul.i32"), ("vmulps", "mul.f32"), ("{vex}\tvpdpbusd", "vpdpbusd")),
])  # fmt: skip
def test_every_kind_of_multiply_add_counts(name: str, declared: str) -> None:
    parsed = assembly.parse(f"\t{name}\t%zmm1, %zmm2, %zmm3")
    (one,) = (one for one in DECLARED if one.name == f"x86.avx512.{declared}")
    assert parsed is not None
    assert assembly.count_x86([parsed], one, uses_frame_pointer=False).multiply_adds == 1


@pytest.mark.parametrize(
    ("cpu", "multiply", "loads"),
    [("znver5", 12.0, 5.5), ("znver4", 24.0, 7.0), ("skylake-avx512", 12.0, 5.5)],
)
def test_the_bound_follows_the_core(cpu: str, multiply: float, loads: float) -> None:
    lines = ["vmovups\t(%rsi), %zmm0"] * 3 + ["vbroadcastss\t(%rdi), %zmm1"] * 8
    lines += [f"vfmadd231ps\t%zmm0, %zmm1, %zmm{i + 2}" for i in range(24)]
    parsed = [i for i in map(assembly.parse, lines) if i is not None]
    found = assembly.bound(
        assembly.count_x86(parsed, SPEC.how.instruction, uses_frame_pointer=False), SPEC, cpu
    )
    assert found.declared
    assert found.cycles["multiply-adds"] == multiply
    assert found.cycles["loads"] == loads
    assert (found.binds, found.peak_share) == ("multiply-adds", 1.0)


def test_other_processors_get_counts_without_a_bound() -> None:
    lines = ["ld1r\t{v1.4s}, [x0]", "ldr\tq0, [x1], #16", "fmla\tv2.4s, v0.4s, v1.4s"]
    lines += ["str\tq3, [sp, #16]", "b.lt\t.LBB0_1"]
    neon = replace(SPEC, how=arithmetic_of(SQUARE, Target("any", features=frozenset({"neon"}))))
    counts = assembly.count_other(
        [i for i in map(assembly.parse, lines) if i is not None], neon.how.instruction
    )
    assert (counts.multiply_adds, counts.broadcasts, counts.stores) == (1, 1, 1)
    assert (counts.vector_loads, counts.stack_references, counts.instructions) == (1, 1, 5)
    text = "\n".join(["tilewise_kernel_full_0:", ".LBB0_1:", *(f"\t{line}" for line in lines)])
    found = assembly.hottest_loop(text, neon, "neoverse-v2", is_x86=False)
    assert found.bound is None
    assert "neoverse-v2 is not x86" in assembly.render(found)


@pytest.mark.parametrize(
    ("cpu", "cycles", "share"), [("znver5", 1.0, 1.0), ("emeraldrapids", 4.0, 0.5)]
)
def test_a_slow_instruction_has_a_share_of_the_peak(cpu: str, cycles: float, share: float) -> None:
    target = Target("any", features=frozenset({"avx512bf16"}), vector_bytes=64)
    one = assembly.parse("\tvdpbf16ps\t%zmm0, %zmm1, %zmm2")
    assert one is not None
    how = arithmetic_of(parse_problem("matmul:m=64,n=64,k=64,dtype=bf16"), target)
    counts = assembly.count_x86([one, one], how.instruction, uses_frame_pointer=False)
    found = assembly.bound(counts, replace(SPEC, how=how), cpu)
    assert found.cycles["multiply-adds"] == cycles
    assert found.peak_share == share


def test_measured_loops_change_nothing() -> None:
    target = detect()
    call, operations = multiplier(target, "f32")
    assert operations % (2 * target.lanes("f32")) == 0
    for run in (call, reader(target, 1), reader(target, 3)):
        lines = np.arange(3 * 5 * target.vector_bytes).astype(np.uint8)
        before = lines.copy()
        run(lines.ctypes.data, 5)
        assert (lines == before).all()


def test_rounds_go_on_until_the_fastest_ones_agree() -> None:
    """A busy machine disturbs most rounds, each by another amount."""
    delays = [*(0.004 + 0.0015 * (number % 5) for number in range(40)), *[0.001] * 40]
    left = iter(delays)

    def run(_address: int, _steps: int) -> None:
        end = time.thread_time() + next(left)
        while time.thread_time() < end:
            pass

    agreed = microbench._confirmed_least(run, (0, 0), 15)
    assert agreed <= 0.005 and len(list(left)) >= 25, "nine rounds of 4 ms agree"
    left = iter([0.03, 0.02, 0.015, 0.012, 0.010, 0.008, 0.006, 0.005, 0.001, 0.001, 0.001, 0.001])
    assert microbench._confirmed_least(run, (0, 0), 3) < 0.003


def test_time_that_other_processes_take_does_not_count() -> None:
    def waits(_address: int, _steps: int) -> None:
        time.sleep(0.05)

    assert microbench._timed(waits, 0, 0) < 0.04
