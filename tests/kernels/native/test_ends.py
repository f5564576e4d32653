"""Native kernels that begin at the nearer end, and sums of parts of a reduction."""

import ctypes
import re
from dataclasses import replace

import llvmlite.binding as llvm
import numpy as np
import pytest
from llvmlite import ir

from tests.kernels.native_case import TARGETS, check
from tilewise.kernels.arithmetic import sweep_arithmetic
from tilewise.kernels.errors import LoweringError
from tilewise.kernels.loopnest import build
from tilewise.kernels.native import lower
from tilewise.kernels.native.driver.scope import PROBED_LINES
from tilewise.kernels.native.ir.vectors import LINE_BYTES
from tilewise.kernels.native.jit.drivers import load_driver
from tilewise.kernels.native.language import primitives
from tilewise.kernels.native.language.ends import comes_sooner
from tilewise.kernels.native.language.to_ir import emit_function
from tilewise.kernels.native.plan import plan
from tilewise.kernels.oracle.operands import Array, make_operands, poison
from tilewise.kernels.problem import DTYPES, Matmul
from tilewise.kernels.schedule import (
    Alternate,
    Divide,
    Parallel,
    Prefetch,
    Register,
    Schedule,
    Split,
    Step,
    Stream,
    Sweep,
    Tile,
)
from tilewise.kernels.target import Target

PROBE = re.compile(r"turns = comes_sooner\(.*")
SWEPT = (Stream("k", 8), Register(2, 32), Sweep("n"))
CASES: dict[str, tuple[Matmul, tuple[Step, ...]]] = {
    "rows": (
        Matmul(m=47, n=1, k=70, dtype="f32", bias=True, epilogue="relu"),
        (Tile("m", 6), Alternate("m"), Register(3, 1), Split("k", 16)),
    ),
    "rows of a transposed A": (
        Matmul(m=47, n=70, k=19, dtype="f32", transpose_a=True),
        (Tile("m", 6), Alternate("m"), Register(1, 32)),
    ),
    "columns": (
        Matmul(m=2, n=57, k=83, dtype="f32", transpose_b=True, init="accumulate"),
        (Tile("n", 10), Alternate("n"), Stream("k", 32), Register(1, 2), Split("k", 16)),
    ),
    "columns of a sweep": (
        Matmul(m=2, n=331, k=45, dtype="f32", bias=True),
        (Tile("n", 64), Alternate("n"), *SWEPT),
    ),
    "reduction": (
        Matmul(m=2, n=131, k=101, dtype="f32", bias=True, init="accumulate", epilogue="relu"),
        (Divide("k", 24), Alternate("k"), *SWEPT),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_both_orders_have_the_same_bits(name: str, host: Target) -> None:
    problem, steps = CASES[name]
    first, last = (_computed(problem, steps, host, turns) for turns in (False, True))
    assert np.array_equal(first.view(np.uint32), last.view(np.uint32))
    check(problem, Schedule(steps), host, len(name))


def _computed(problem: Matmul, steps: tuple[Step, ...], host: Target, turns: bool) -> Array:
    """The result of the kernel that begins at one end, whichever is nearer."""
    schedule, operands = Schedule(steps), make_operands(problem, 3)
    text, probes = PROBE.subn(f"turns = {int(turns)}", plan(problem, schedule, host).source.text)
    assert probes == 1
    if not problem.accumulates:
        poison(operands["C"])
    replace(lower(problem, schedule, host), drivers=load_driver(text)).run(operands)
    return operands["C"]


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: f"{t.vector_bytes}B{len(t.features)}")
@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_parts_of_every_type_and_target(dtype: str, target: Target) -> None:
    """Whole parts and a short one, of whole chunks and what is left; one chunk for each part."""
    problem = Matmul(m=3, n=179, k=107, dtype=dtype, bias=True, init="accumulate", epilogue="relu")
    how = sweep_arithmetic(dtype, target)
    depth, register = 2 * how.depth, Register(3, 2 * target.lanes(dtype))
    for chunks in (1, 4):
        steps = (Divide("k", chunks * depth), Alternate("k"), Stream("k", depth), Prefetch("B"))
        schedule = Schedule((*steps, register, Sweep("n")))
        if how.offset:
            with pytest.raises(LoweringError, match="drop the step divide"):
                plan(problem, schedule, target)
        else:
            check(problem, schedule, target, chunks)


def test_batches_and_threads(host: Target) -> None:
    problem = Matmul(batch=2, m=2, n=331, k=70, dtype="f32")
    divided = (Tile("batch", 1), Divide("k", 16), Alternate("k"), *SWEPT)
    columns = (Tile("batch", 1), Tile("n", 64), Alternate("n"), *SWEPT)
    for seed, steps in enumerate((divided, columns)):
        check(problem, Schedule(steps), host, seed)
        check(problem, Schedule((Parallel("n", 2), *steps)), host.with_threads(2), seed)


def test_each_thread_times_lines_of_its_own_columns(host: Target) -> None:
    """Those of another thread's say nothing of what its own cache has."""
    problem, steps = CASES["reduction"]
    divided = Schedule((Parallel("n", 2), *steps))
    probe = PROBE.search(plan(problem, divided, host.with_threads(2)).source.text)
    whole = PROBE.search(plan(problem, Schedule(steps), host).source.text)
    assert probe and whole
    assert probe.group().count("n_first * b_n") == 2 and "b_n" not in whole.group()


def test_scratch_is_the_sums_of_parts_alone(host: Target) -> None:
    """Constant weights that are read in place have no panels."""
    problem, steps = CASES["reduction"]
    ahead = replace(problem, weights="constant")
    for one in (problem, ahead):
        scratch = lower(one, Schedule(steps), host).scratch_bytes
        assert scratch["A"] >= 4 * 5 * problem.m * problem.n
        assert scratch["B"] == LINE_BYTES


def test_a_nest_says_what_is_summed_apart_and_what_comes_first() -> None:
    problem, steps = CASES["reduction"]
    lines = str(build(problem, Schedule(steps))).splitlines()
    assert lines[0] == "for k step 24  # divide, 5 trips, from the nearer end"
    assert lines[-1] == "add 5 parts up to C"


def test_a_last_block_has_fewer_rows_than_are_timed(host: Target) -> None:
    """Guard pages lie behind it."""
    for rows in range(1, PROBED_LINES):
        problem = Matmul(m=8 + rows, n=1, k=40, dtype="i8")
        steps = (Tile("m", 4), Alternate("m"), Register(4, 1), Split("k", 16))
        check(problem, Schedule(steps), host, rows)


@pytest.mark.skipif(not primitives.IS_X86, reason="programs read the clock of x86 processors alone")
def test_lines_that_were_just_read_come_sooner(host: Target) -> None:
    """In most of many tries: other programs share the caches, and delay loads."""
    far = np.ones(max(host.l3_bytes // 4, 16 * host.l2_bytes), np.uint8)
    near = np.ones(1 << 14, np.uint8)
    found = []
    for _ in range(31):
        far.sum()
        near.sum()
        there, here = (array.ctypes.data for array in (near, far))
        found.append(comes_sooner(there, here, 1 << 12, PROBED_LINES))
        near.sum()
        found.append(1 - comes_sooner(here + (1 << 20), there, 1 << 12, PROBED_LINES))
    assert sum(found) > len(found) * 3 // 4


def test_without_a_clock_the_first_block_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """On processors other than x86, whichever end is nearer."""
    monkeypatch.setattr(primitives, "IS_X86", False)
    module = ir.Module("ends")
    name = emit_function(module, "comes_sooner").name
    assert "llvm." not in str(module), "an intrinsic of x86, or a counter that traps"
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine()
    with llvm.create_mcjit_compiler(llvm.parse_assembly(str(module)), machine) as engine:
        engine.finalize_object()
        kind = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 4)
        asked = kind(engine.get_function_address(name))
        lines = np.zeros(1 << 12, np.uint8)
        for there, here in ((0, 1 << 11), (1 << 11, 0)):
            at = (lines.ctypes.data + there, lines.ctypes.data + here)
            assert asked(*at, 64, PROBED_LINES) == 0
