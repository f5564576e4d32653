"""Objects of ranges: each size is right and within its memory, whatever variants serve it."""

import multiprocessing
import subprocess
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.cases import cases, some
from tests.kernels.native.objects.test_objects import needs_a_library
from tests.kernels.native.objects.test_objects_from_c import compiled, needs_c
from tests.kernels.native_case import TARGETS
from tests.kernels.strategies import matmuls, schedules
from tilewise.kernels.errors import ProblemError, ScheduleError
from tilewise.kernels.native.objects.make import KernelObject, make_range_object
from tilewise.kernels.native.objects.object_files import Elf
from tilewise.kernels.native.objects.proof.calls import LoadedObject
from tilewise.kernels.native.objects.proof.checks import ObjectTrial
from tilewise.kernels.native.objects.proof.prove import prove_range_object
from tilewise.kernels.native.objects.python_module import module_text
from tilewise.kernels.native.range_plan import RangePlan, served_sizes
from tilewise.kernels.oracle.operands import make_operands
from tilewise.kernels.oracle.reference import compare, reference
from tilewise.kernels.problem import ProblemRange, Size, parse_range
from tilewise.kernels.range_schedule import RangeSchedule
from tilewise.kernels.schedule import Schedule, loop_nest
from tilewise.kernels.steps import Pack, Parallel, Register, Skinny, Strassen, Stream, Tile
from tilewise.kernels.target import Target

PACKED = Schedule((Stream("k", 16), Pack("B"), Pack("A"), Register(3, 32)))
IN_PLACE = Schedule((Register(4, 16),))
BOTH = Schedule((Pack("B"), Pack("A"), Register(2, 8)))
OF_ROWS = Schedule((Parallel("m", 2), *PACKED.steps))
OF_COLUMNS = Schedule((Parallel("n", 2), *PACKED.steps))
EACH = Schedule((Tile("batch", 1), Pack("B"), Register(3, 32)))
FEW = Schedule((Stream("k", 8), Register(1, 32), Skinny("n")))


def in_turn(problems: ProblemRange, *variants: Schedule) -> RangeSchedule:
    """The first variant serves the first size, the next one the next size, and so on."""
    sizes = len(problems.sizes)
    return RangeSchedule(problems, variants, tuple(at % len(variants) for at in range(sizes)))


def check(schedule: RangeSchedule, target: Target, sizes: tuple[Size, ...]) -> None:
    """All that a proof checks at the first of `sizes`, and the results at the others."""
    made = make_range_object(schedule, target)
    found = Elf.read(made.object)
    assert found.undefined == () and found.writable_bytes == 0
    loaded = LoadedObject(made.interface, made.object)
    for at, size in enumerate(sizes):
        one = loaded.of_size(size)
        trial = ObjectTrial.of(schedule.problems.at(size), schedule.at(size), one, seed=at)
        for each in trial.results() if at else trial.checks():
            each()
    module = loaded_module(schedule, target, made)
    for at, size in enumerate(sizes):
        check_module(module, schedule.problems, size, seed=at)


def loaded_module(schedule: RangeSchedule, target: Target, made: KernelObject) -> ModuleType:
    module = ModuleType("of_range")
    exec(module_text(schedule, target, made), vars(module))
    return module


def check_module(module: ModuleType, problems: ProblemRange, size: Size, seed: int) -> None:
    """The module finds the size by the shapes of what it is given."""
    problem = problems.at(size)
    operands = make_operands(problem, seed)
    expected = reference(problem, operands)
    if "batch" in problems.dims and size[0] == 1:
        batched = operands.keys() & {"A", "B", "C", "add"}
        operands |= {name: operands[name][None] for name in batched}
    weights = [operands[name] for name in problem.constants]
    second = module.pack(*weights) if weights else operands["B"]
    out = operands["C"].copy() if problem.accumulates else None
    more = {name: operands[name] for name in problem.extras if name not in problem.constants}
    result = getattr(module, problem.op)(operands["A"], second, out, **more)
    assert np.less_equal(*compare(problem, result.reshape(problem.operand_shapes["C"]), expected))


@pytest.mark.timeout(900)
@cases(10, short=2)
@given(st.data())
def test_any_matmul_with_any_legal_schedules(data: st.DataObject) -> None:
    problem = data.draw(matmuls)
    dims = data.draw(
        st.lists(st.sampled_from(["m", "n", "k", "batch"]), unique=True, min_size=1, max_size=2)
    )
    steps = 6 if len(dims) == 1 else 2
    texts = {}
    for dim in dims:
        first, step = data.draw(st.integers(1, 20)), data.draw(st.integers(1, 5))
        texts[dim] = f"{first}..{first + steps * step}:{step}"
    try:
        problems = parse_range({**problem.to_json(), **texts})
    except ProblemError:
        assume(False)
    target = data.draw(st.sampled_from(TARGETS))
    assume(not needs_a_library(problem, target))
    ends = problems.sizes[-1], problems.sizes[0]
    variants = tuple(dict.fromkeys(data.draw(schedules(problems.at(e), target)) for e in ends))
    served = [served_sizes(problems, one, target) for one in variants]
    choice = tuple(
        next((at for at, sizes in enumerate(served) if size in sizes), -1)
        for size in problems.sizes
    )
    assume(set(choice) == set(range(len(variants))))
    parts = {len(loop_nest(problems.at(each[0]), one).parts)
             for each, one in zip(served, variants, strict=True)}  # fmt: skip
    assume(len(parts) == 1)
    check(RangeSchedule(problems, variants, choice), target, problems.sizes)


TALLER = Schedule((*PACKED.steps[:-1], Register(5, 32)))
WIDER = Schedule((Pack("B"), Register(2, 48)))
EACH_TALLER = Schedule((*EACH.steps[:-1], Register(5, 16)))
LINES = Schedule((Tile("n", 1), Tile("oh", 1), Pack("A"), Register(3, 16)))
IMAGES = "conv2d:n=1..4,h=5,w=6,ci=3,co=18,kh=3,kw=2,pad=1,dtype=f32,weights=constant"


@pytest.mark.parametrize(("text", "variants"), some([
    ("matmul:m=1..13,n=37,k=50,dtype=f32,bias,epilogue=relu", (PACKED, IN_PLACE)),
    ("matmul:m=4..28:4,n=37,k=50,dtype=f32,weights=constant", (PACKED, IN_PLACE)),
    ("matmul:m=1..9,n=64,k=50,dtype=f32,weights=constant", (PACKED, WIDER)),
    ("matmul:m=8..29:3,n=37,k=50,dtype=f32", (OF_ROWS, OF_COLUMNS)),
    ("matmul:k=17..40,m=9,n=37,dtype=i32", (PACKED,)),
    ("matmul:m=3..15:4,k=17..20,n=37,dtype=f32,bias", (PACKED, TALLER)),
    ("matmul:batch=2..4,m=1..7,n=37,k=20,dtype=f32", (EACH, EACH_TALLER)),
    ("matmul:n=20..60:8,m=9,k=33,dtype=f64,transpose_b", (BOTH,)),
    (IMAGES, (LINES,)),
    ("matmul:m=4..20:2,n=32,k=64,dtype=f32", (Schedule((Strassen(1), *PACKED.steps[1:])),)),
], of=3))  # fmt: skip
def test_each_size_of_a_range(text: str, variants: tuple[Schedule, ...], host: Target) -> None:
    problems = parse_range(text)
    check(in_turn(problems, *variants), host, problems.sizes)


def test_a_variant_of_few_rows_serves_those_it_can(host: Target) -> None:
    problems = parse_range("matmul:m=1..12,n=64,k=40,dtype=f32")
    assert served_sizes(problems, FEW, host) == ((1,),)
    assert served_sizes(problems, PACKED, host) == problems.sizes
    check(RangeSchedule(problems, (FEW, PACKED), (0, *[1] * 11)), host, ((1,), (2,), (12,)))
    with pytest.raises(ScheduleError, match="cannot be applied"):
        make_range_object(in_turn(problems, FEW), host)


def test_weights_are_packed_once_in_each_format(host: Target) -> None:
    problems = parse_range("matmul:m=1..8,n=64,k=48,dtype=f32,weights=constant")
    formats = [
        RangePlan.of(problems, one, problems.sizes, host).packed_format
        for one in (PACKED, TALLER, WIDER, IN_PLACE)
    ]
    assert formats[0] == formats[1] != formats[2] and formats[3] is None
    bytes_of = [
        make_range_object(in_turn(problems, *variants), host).interface.packed_bytes
        for variants in ((PACKED,), (PACKED, TALLER), (PACKED, WIDER), (PACKED, IN_PLACE))
    ]
    whole = 64 * 48 * 4
    assert bytes_of[0] == bytes_of[1] == whole
    assert bytes_of[2] > bytes_of[3] == 2 * whole


def test_parts_share_sums_where_those_of_all_sizes_do(host: Target) -> None:
    problems = parse_range("matmul:m=64,n=64,k=16..64:16,dtype=f32,transpose_a,transpose_b,add")
    shared = [
        RangePlan.of(problems, OF_ROWS, ((first,), (64,)), host).planned.panels.shares_c
        for first in (16, 32)
    ]
    assert shared == [False, True], "the sums of 16 are those of a tile"


def test_a_forked_process_has_threads_of_its_own(host: Target) -> None:
    schedule = in_turn(parse_range("matmul:m=8..29:3,n=37,k=50,dtype=f32"), OF_ROWS)
    module = loaded_module(schedule, host, make_range_object(schedule, host))
    operands = np.ones((9, 50), np.float32), np.ones((50, 37), np.float32)
    assert (module.matmul(*operands) == 50).all()
    child = multiprocessing.get_context("fork").Process(target=module.matmul, args=operands)
    child.start()
    child.join(60)
    child.kill()
    assert child.exitcode == 0


def test_a_module_refuses_what_its_range_does_not_have(host: Target) -> None:
    problems = parse_range("matmul:m=2..8:2,n=37,k=50,dtype=f32,weights=constant")
    schedule = in_turn(problems, PACKED, IN_PLACE)
    module = loaded_module(schedule, host, make_range_object(schedule, host))
    a, b = np.ones((8, 50), np.float32), np.ones((50, 37), np.float32)
    packed = module.pack(b)
    moved = np.concatenate([packed[:1], packed])[1:]
    assert (module.matmul(a, packed) == 50).all()
    for arguments, message in (
        ((a[:3], packed), "a has m=3, which matmul:m=2..8:2"),
        ((np.ones((10, 50), np.float32), packed), "a has m=10"),
        ((a[0], packed), "a is not a NumPy array of 2 axes"),
        ((a[:4, :9], packed), r"a is float32\[4, 9\], not float32\[4, 50\]"),
        ((a, b), "packed is float32"),
        ((a, moved), "misaligned"),
        ((a, packed, np.empty((4, 37), np.float32)), r"out is float32\[4, 37\]"),
    ):
        with pytest.raises(ValueError, match=message):
            module.matmul(*arguments)


def test_a_range_is_proven_and_a_wrong_one_is_not(host: Target) -> None:
    problems = parse_range("matmul:m=1..40,n=37,k=50,dtype=f32")
    schedule = in_turn(problems, PACKED, IN_PLACE)
    made = make_range_object(schedule, host)
    proof = prove_range_object(schedule, host, made)
    assert proof.ok and proof.max_error is not None and proof.tolerance is not None
    assert proof.max_error <= proof.tolerance
    relu = parse_range(f"{problems},epilogue=relu")
    proof = prove_range_object(in_turn(relu, PACKED, IN_PLACE), host, made)
    assert proof.failure == "wrong" and "off by" in proof.message


PROGRAM = """
#include "kernel.h"
#include <stdio.h>
static float a[40 * 50], b[50 * 37], out[41 * 37];
static _Alignas(64) char packed[{name}_PACKED_BYTES], scratch[{name}_SCRATCH_BYTES];
int main(void) {{
    for (int i = 0; i < 40 * 50; i++) a[i] = (float)(i % 7 - 3);
    for (int i = 0; i < 50 * 37; i++) b[i] = (float)(i % 5 - 2);
    if (!{name}_supported()) return 77;
    if ({name}_prepare(b, packed)) return 1;
    if ({name}(a, packed, out, scratch, 41) != TILEWISE_NO_SUCH_SIZE) return 2;
    for (int64_t m = 1; m <= 40; m++) {{
        out[m * 37] = 5.0f;
        if ({name}(a, packed, out, scratch, m)) return 3;
        if (out[m * 37] != 5.0f) return 4;
        fwrite(out, sizeof(float), (size_t)m * 37, stdout);
    }}
    return 0;
}}
"""


@needs_c
def test_a_c_program_gives_the_size(host: Target, tmp_path: Path) -> None:
    problems = parse_range("matmul:m=1..40,n=37,k=50,dtype=f32,weights=constant")
    made = make_range_object(in_turn(problems, PACKED, IN_PLACE), host)
    assert "float a[m][50]" in made.header and "float b[50][37]" in made.header
    program = compiled(tmp_path, PROGRAM.format(name=made.interface.alias), made)
    ran = subprocess.run([program], check=True, capture_output=True)
    found = np.frombuffer(ran.stdout, np.float32)
    a = (np.arange(40 * 50) % 7 - 3.0).reshape(40, 50)
    b = (np.arange(50 * 37) % 5 - 2.0).reshape(50, 37)
    assert np.array_equal(found, np.concatenate([(a @ b)[:m].ravel() for m in range(1, 41)]))
