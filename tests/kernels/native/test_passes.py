"""Passes and programs of them compute what NumPy does, on their part, and write nowhere else."""

import ctypes
import functools
import math
import random
from dataclasses import replace
from importlib.util import find_spec
from itertools import count, product
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from examples.models.graph import as_stored
from tests.cases import some
from tilewise.kernels.errors import LoweringError
from tilewise.kernels.native.conversion import Conversion, converter
from tilewise.kernels.native.jit.loading import Loaded
from tilewise.kernels.native.jit.object_code import ObjectCode
from tilewise.kernels.native.objects.object_files import Elf
from tilewise.kernels.native.passes.passes import Chain, pass_of
from tilewise.kernels.native.passes.rows.program import Operation, RowProgram, Source, WrittenTensor
from tilewise.kernels.native.programs import compile as compiling
from tilewise.kernels.native.programs.compile import compiled_program, pass_object, shared_library
from tilewise.kernels.native.programs.steps import At, NetworkProgram, Pass, ProgramStep, Row, Table
from tilewise.kernels.oracle.operands import empty_aligned, poison, to_bf16
from tilewise.kernels.target import detect

Array = NDArray[Any]
RNG = np.random.default_rng(5)


def run(name: str, source: Array, target: Array, part: tuple[int, int], *more: Any) -> None:
    """One call of a pass; floats are given as the bits of an f64."""
    words = [source.ctypes.data, target.ctypes.data, *part]
    for one in more:
        is_float = isinstance(one, float)
        words.append(int(np.float64(one).view(np.int64)) if is_float else int(one))
    row = np.array(words, np.int64)
    Chain(pass_of(name).entry)(row.ctypes.data)


def guarded(*shape: int, kind: type[Any] = np.float32) -> Array:
    array = np.empty(shape, kind)
    poison(array)
    return array


def values(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def windows(x: Array, size: tuple[int, int], step: tuple[int, int], dilation: tuple[int, int],
            pad: tuple[int, int], fill: float, out: tuple[int, int]) -> Array:  # fmt: skip
    """All elements of each window of [outer, height, width, inner], in a last axis."""
    reach = [(o - 1) * s + (k - 1) * d + 1
             for o, s, k, d in zip(out, step, size, dilation, strict=True)]  # fmt: skip
    behind = [max(0, r - p - n) for r, p, n in zip(reach, pad, x.shape[1:3], strict=True)]
    x = np.pad(x, [(0, 0), (pad[0], behind[0]), (pad[1], behind[1]), (0, 0)], constant_values=fill)
    taps = [
        x[:, row : row + (out[0] - 1) * step[0] + 1 : step[0],
          col : col + (out[1] - 1) * step[1] + 1 : step[1]]
        for row in range(0, size[0] * dilation[0], dilation[0])
        for col in range(0, size[1] * dilation[1], dilation[1])
    ]  # fmt: skip
    return np.stack(taps, -1)


@pytest.mark.parametrize(
    ("size", "step", "dilation"),
    some(product([(1, 45), (1, 12), (21, 5), (6, 5)], [1, 2, 3], [1, 2]), of=23),
)
def test_windows_in_whole_vectors(size: tuple[int, int], step: int, dilation: int) -> None:
    """Rows and channels that are no multiple of a vector; nothing behind the image is read."""
    inner, width = size
    reach = 2 * dilation - 1
    x, out = values(3, 6, width, inner), ((6 - reach) // 2 + 1, (width - reach) // step + 1)
    x[1, 2, width // 2, 0] = np.nan
    sizes = (6, width, *out, inner, 3, 3, 2, step, dilation, dilation, 1, 1)
    rows, cut = 3 * out[0], 3
    for name, fill, reduced in (("max", -np.inf, np.max), ("window sum", 0.0, np.sum)):
        made, around = guarded(3, *out, inner), np.full(x.size + 2, np.nan, "f4")
        around[1:-1] = x.reshape(-1)
        untouched = made.copy().reshape(rows, -1)[cut:]
        run(name, around[1:], made, (0, cut), *sizes)
        assert np.array_equal(made.reshape(rows, -1)[cut:], untouched)
        run(name, around[1:], made, (cut, rows), *sizes)
        taps = windows(x, (3, 3), (2, step), (dilation, dilation), (1, 1), fill, out)
        np.testing.assert_allclose(made, reduced(taps, -1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("inner", [1, 6])
def test_sums_of_axes(inner: int) -> None:
    x, made = values(7, 49, inner), guarded(7, inner)
    run("sum", x, made, (0, 3), 49, inner)
    run("sum", x, made, (3, 7), 49, inner)
    np.testing.assert_allclose(made, x.sum(1), rtol=1e-5, atol=1e-5)


def test_a_copy_of_words_and_a_fill() -> None:
    x, made = values(101), guarded(101)
    run("copy", x, made, (0, 50))
    run("copy", x, made, (50, 100))
    assert np.array_equal(made[:100], x[:100])
    assert made[100:].view(np.uint8).tolist() == [0xC5] * 4
    made = guarded(9)
    run("fill", made, made, (0, 8), float("-inf"))
    assert made[:8].tolist() == [-np.inf] * 8
    assert np.isfinite(made[8])


TYPES = (np.uint8, np.uint16, np.uint32, np.uint64)


def random_conversion(rng: random.Random) -> Conversion:
    rank = rng.randint(1, 5)
    axes = range(rank)
    return Conversion(
        tuple(rng.choice((2, 3, 5, 17, 33) if rank < 5 else (2, 3)) for _ in axes),
        tuple(rng.sample(axes, rank)),
        tuple(rng.sample(axes, rank)),
        tuple(rng.choice((0, 0, 1, 2)) for _ in axes),
    )


@pytest.mark.parametrize("kind", TYPES)
def test_a_conversion_is_a_transposition_inside_of_a_halo(kind: type[np.unsignedinteger]) -> None:
    rng, values = random.Random(3), np.random.default_rng(3)
    seen = set()
    for _ in range(60):
        conversion = random_conversion(rng)
        source = values.integers(0, 250, conversion.source_shape).astype(kind)
        target = np.full(conversion.target_shape, 255, kind)
        converter(conversion)(source, target)
        tensor = source.transpose(np.argsort(conversion.source))
        pads = [(one, one) for one in conversion.halo]
        expected = np.pad(tensor, pads, constant_values=255).transpose(conversion.target)
        np.testing.assert_array_equal(target, expected, err_msg=str(conversion))
        seen.add((conversion.source[-1] == conversion.target[-1], any(conversion.halo)))
    assert len(seen) == 4


LENGTHS = [1, 7, 16, 50, 128, 131, 219]
READ = Operation("read", (), 0)
NUMBERS = count()


def run_rows(
    program: RowProgram, rows: tuple[int, int], sources: list[Any], targets: list[Array]
) -> None:
    """One call; a source is an array, or one with its table."""
    words = [0, 0, *rows]
    for one in sources:
        array, table = one if isinstance(one, tuple) else (one, None)
        words += [array.ctypes.data, 0 if table is None else table.ctypes.data]
    words += [one.ctypes.data for one in targets]
    row = np.array(words, np.int64)
    function = loaded(program)
    Chain(function.addresses[0])(row.ctypes.data)


@functools.cache
def loaded(program: RowProgram) -> Loaded:
    name = f"tilewise_rows{next(NUMBERS)}"
    return Loaded(ObjectCode((name,), pass_object(program, name, detect())[0]))


def wide(columns: int) -> Source:
    return Source("f32", True, columns)


@pytest.mark.parametrize("columns", LENGTHS)
def test_a_layer_norm_with_a_residual(columns: int) -> None:
    names = [("add", (0, 1)), ("row sum", (4,)), ("number", (), columns), ("divide", (5, 6)),
             ("subtract", (4, 7)), ("multiply", (8, 8)), ("row sum", (9,)), ("divide", (10, 6)),
             ("number", (), 1e-5), ("add", (11, 12)), ("rsqrt", (13,)), ("multiply", (8, 14)),
             ("multiply", (15, 2)), ("add", (16, 3))]  # fmt: skip
    reads = [Operation("read", (), i) for i in range(4)]
    operations = (*reads, *(Operation(*one) for one in names))
    whole, one_row = wide(columns), Source("f32", True, 0)
    program = RowProgram(
        columns, (whole, whole, one_row, one_row), operations,
        (WrittenTensor("f32", 17, True), WrittenTensor("f32", 7, False)),
    )  # fmt: skip
    x, y, scale, shift = (values(9, columns), values(9, columns), values(columns), values(columns))
    made, means = guarded(9, columns), guarded(9)
    for rows in ((0, 0), (0, 3), (3, 8)):
        run_rows(program, rows, [x, y, scale, shift], [made, means])
    total = x.astype(float) + y
    centred = total - total.mean(1, keepdims=True)
    normal = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(made[:8], (normal * scale + shift)[:8], rtol=1e-4, atol=2e-5)
    np.testing.assert_allclose(means[:8], total.mean(1)[:8], rtol=1e-5, atol=1e-6)
    assert {*made[8].view(np.uint32), *means[8:].view(np.uint32)} == {0xC5C5C5C5}


def of_rows(columns: int, *more: tuple[Any, ...], source: Source | None = None) -> RowProgram:
    """Operations after a read of rows, of which the last is written."""
    operations = (READ, *(Operation(*one) for one in more))
    target = WrittenTensor("f32", len(more), True)
    return RowProgram(columns, (source or wide(columns),), operations, (target,))


def test_a_zero_keeps_its_sign() -> None:
    for zero, expected in ((0.0, np.inf), (-0.0, -np.inf)):
        made = guarded(1, 5)
        program = of_rows(5, ("number", (), zero), ("divide", (0, 1)))
        run_rows(program, (0, 1), [np.ones((1, 5), np.float32)], [made])
        assert (made == expected).all()


@pytest.mark.parametrize("columns", LENGTHS)
def test_a_softmax_keeps_what_is_no_number(columns: int) -> None:
    names = [("number", (), 0.125), ("multiply", (0, 1)), ("row max", (2,)), ("subtract", (2, 3)),
             ("exp", (4,)), ("row sum", (5,)), ("divide", (5, 6))]  # fmt: skip
    x, made = 100 * values(6, columns), guarded(6, columns)
    x[1, columns // 2], x[2], x[3, 0] = np.nan, -np.inf, np.inf
    if columns > 1:
        x[4, 0] = -np.inf
    run_rows(of_rows(columns, *names), (0, 6), [x], [made])
    with np.errstate(invalid="ignore"):
        scaled = x.astype(float) / 8
        powers = np.exp(scaled - scaled.max(1, keepdims=True))
        expected = powers / powers.sum(1, keepdims=True)
    assert [np.isnan(row).any() for row in made] == [False, True, True, True, False, False]
    np.testing.assert_allclose(made, expected, rtol=2e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("name", "function", "units"),
    [("exp", math.exp, 2), ("erf", math.erf, 5), ("tanh", math.tanh, 3)],
)
def test_functions_are_within_units_in_the_last_place(name: str, function: Any, units: int) -> None:
    x = np.concatenate([spread * values(3000) for spread in (1e-3, 0.1, 1, 4, 60)])
    x = np.clip(x, -86, 86).astype(np.float32)
    ends = np.array([np.inf, -np.inf, np.nan, 1e4, -1e4, 0, -0.0, -100], np.float32)
    made, found = guarded(x.size), guarded(8)
    for given, to in ((x, made), (ends, found)):
        run_rows(of_rows(given.size, (name, (0,)), source=wide(0)), (0, 1), [given], [to])
    expected = np.array([function(float(one)) for one in x])
    off = np.abs(made - expected) / np.spacing(np.abs(expected).astype(np.float32))
    assert off.max() < units
    least, most, zero = (0.0, np.inf, 1.0) if name == "exp" else (-1.0, 1.0, 0.0)
    np.testing.assert_allclose(found[:7], [most, least, np.nan, most, least, zero, zero], rtol=1e-6)
    assert found[7] == (np.float32(math.exp(-100)) if name == "exp" else -1)


def test_operations_of_elements() -> None:
    x, y = values(4, 37), values(4, 37)
    x[0, :3], y[0, 2:5] = np.nan, np.nan
    less, larger = 4, 2  # MLIR's numbers of ordered comparisons
    cases: list[tuple[list[tuple[Any, ...]], Any]] = [
        ([("subtract", (0, 1))], x - y), ([("max", (0, 1))], np.maximum(x, y)),
        ([("min", (0, 1))], np.minimum(x, y)), ([("maxnum", (0, 1))], np.fmax(x, y)),
        ([("minnum", (0, 1))], np.fmin(x, y)), ([("negate", (0,))], -x),
        ([("abs", (0,)), ("sqrt", (2,))], np.sqrt(np.abs(x))),
        ([("multiply add", (0, 1, 1))], x.astype(float) * y + y),
        ([("number", (), 0.5), ("max", (0, 2))], np.maximum(x, np.float32(0.5))),
        ([("compare", (0, 1), less), ("select", (2, 1, 0))], np.where(x < y, y, x)),
        ([("compare", (0, 1), larger), ("select", (2, 0, 1))], np.where(x > y, x, y)),
        ([("narrow", (0,)), ("widen", (2,))], as_stored(x, "bf16")),
    ]  # fmt: skip
    for more, expected in cases:
        program, made = of_rows(37, ("read", (), 1), *more), guarded(4, 37)
        run_rows(replace(program, sources=(wide(37), wide(37))), (0, 4), [x, y], [made])
        np.testing.assert_allclose(made, expected, rtol=1e-7, err_msg=str(more))


@pytest.mark.parametrize("name", ["sum", "max", "maxnum", "min", "minnum"])
def test_reductions(name: str) -> None:
    x = values(5, 77)
    x[2, 9] = np.nan
    written = [(1, False), (1, True), (2, True)]
    targets = tuple(WrittenTensor("f32", at, is_wide) for at, is_wide in written)
    program = of_rows(77, (f"row {name}", (0,)), ("subtract", (0, 1)))
    ones, same, rest = guarded(5), guarded(5, 77), guarded(5, 77)
    run_rows(replace(program, targets=targets), (0, 5), [x], [ones, same, rest])
    plain = {"sum": np.sum, "max": np.max, "maxnum": np.fmax.reduce, "min": np.min,
             "minnum": np.fmin.reduce}[name]  # fmt: skip
    np.testing.assert_allclose(ones, plain(x, axis=1), rtol=1e-5, atol=1e-5)
    assert np.array_equal(same, np.repeat(ones[:, None], 77, 1), equal_nan=True)
    assert np.array_equal(rest, x - ones[:, None], equal_nan=True)


def test_rows_by_a_table_and_casts_of_bf16() -> None:
    x, bias = as_stored(values(6, 40), "bf16"), values(6)
    order = np.array([3, 0, 5, 1], np.int64)
    names = ("read", (), 1), ("add", (0, 1)), ("narrow", (2,))
    operations = (READ, *(Operation(*one) for one in names))
    sources = Source("bf16", True, None), Source("f32", False, None)
    program = RowProgram(21, sources, operations, (WrittenTensor("bf16", 3, True),))
    made = guarded(5, 21, kind=np.uint16)
    run_rows(program, (0, 4), [(to_bf16(x), 40 * order + 2), (bias, order)], [made])
    expected = as_stored(x[order, 2:23] + bias[order, None], "bf16")
    assert np.array_equal(made[:4], to_bf16(expected))
    assert set(made[4].view(np.uint8)) == {0xC5}


def test_ties_round_to_even() -> None:
    bits = np.array([[0x3F808000, 0x3F818000, 0xBF808000, 0x3F808001]], np.uint32)
    operations = (READ, Operation("narrow", (0,)))
    program = RowProgram(4, (wide(4),), operations, (WrittenTensor("bf16", 1, True),))
    made = guarded(1, 4, kind=np.uint16)
    run_rows(program, (0, 1), [bits.view(np.float32)], [made])
    assert made.tolist() == [[0x3F80, 0x3F82, 0xBF80, 0x3F81]]


@pytest.mark.parametrize("seed", range(12))
def test_programs_at_random(seed: int) -> None:
    """Sums, products and reductions in any order, all of them written."""
    random = Random(seed)
    columns = random.choice([3, 33, 140, 300])
    x = values(3, columns)
    operations, expected = [READ], [x.astype(float)]
    for _ in range(random.randint(1, 9)):
        if random.random() < 0.4:
            of = random.randrange(len(operations))
            name = random.choice(["sum", "max", "min"])
            if expected[of].shape[1] != columns:
                continue
            operations.append(Operation(f"row {name}", (of,)))
            expected.append(getattr(np, name)(expected[of], axis=1, keepdims=True) / 1)
        else:
            a, b = (random.randrange(len(operations)) for _ in "ab")
            name = random.choice(["add", "subtract"])
            operations.append(Operation(name, (a, b)))
            expected.append(getattr(np, name)(expected[a], expected[b]))
    are_wide = [one.shape[1] == columns for one in expected]
    targets = tuple(WrittenTensor("f32", i, is_wide) for i, is_wide in enumerate(are_wide))
    made = [guarded(*one.shape) for one in expected]
    run_rows(RowProgram(columns, (wide(columns),), tuple(operations), targets), (0, 3), [x], made)
    for number, (found, right) in enumerate(zip(made, expected, strict=True)):
        size = np.abs(right).max() + columns
        np.testing.assert_allclose(found, right, atol=1e-5 * size, err_msg=str(operations[number]))


def test_a_choice_by_no_comparison_is_refused() -> None:
    with pytest.raises(LoweringError, match="something else than a comparison"):
        loaded(of_rows(8, ("select", (0, 0, 0))))


needs_a_linker = pytest.mark.skipif(find_spec("iree") is None, reason="its linker is absent")
LINES, LENGTH = 6, 5
COUNT = LINES * LENGTH
NAME = "tilewise_test"


RELU = RowProgram(
    LENGTH,
    (Source("f32", is_wide=True, row=LENGTH),),
    (Operation("read"), Operation("number", (), 0.0), Operation("max", (0, 1))),
    (WrittenTensor("f32", 2, is_wide=True),),
)


def program_steps() -> tuple[ProgramStep, ...]:
    """Rows of the weights in reverse, then half of them cut off at 0 by each of two threads."""
    froms = Table(tuple(LENGTH * row for row in reversed(range(LINES))))
    tos = Table(tuple(LENGTH * row for row in range(LINES)))
    copy: Row = (At("weights", 0), At("activations", 0), 0, LINES, froms, tos, LENGTH, COUNT, COUNT)
    ends = At("activations", 0), At("activations", 4 * COUNT)
    source, target = ends
    cuts = tuple((0, 0, *part, source, 0, target) for part in ((0, 2), (2, LINES)))
    return ProgramStep(Pass("rows 4"), (copy,)), ProgramStep(RELU, cuts)


@needs_a_linker
def test_a_program_runs_from_a_library(tmp_path: Path) -> None:
    program = NetworkProgram(NAME, detect().with_threads(2), program_steps(), 8 * COUNT)
    code = compiled_program(program)
    undefined = {name for data in code.objects.values() for name in Elf.read(data).undefined}
    assert {name for name in undefined if not name.startswith(NAME)} <= compiling.OF_C
    path = tmp_path / "program.so"
    path.write_bytes(shared_library(code))
    library = ctypes.CDLL(str(path))
    assert all(hasattr(library, name) for name in code.functions)
    assert not hasattr(library, f"{NAME}_pass0")
    assert library[f"{NAME}_supported"]() == 1
    weights = empty_aligned((LINES, LENGTH), np.float32)
    weights[...] = np.random.default_rng(0).standard_normal(weights.shape)
    activations = empty_aligned((program.activations_bytes,), np.uint8)
    activations[...] = 0
    run = library[f"{NAME}_run"]
    run.argtypes, run.restype = [ctypes.c_void_p] * 2, None
    run(activations.ctypes.data, weights.ctypes.data)
    made = activations[: 8 * COUNT].view(np.float32).reshape(2, LINES, LENGTH)
    assert np.array_equal(made[0], weights[::-1])
    assert np.array_equal(made[1], np.maximum(weights[::-1], 0))


@needs_a_linker
def test_what_others_would_have_to_have_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    row = At("weights", 0), At("activations", 0), 0, 4, 8, 16
    program = NetworkProgram(NAME, detect(), (ProgramStep(Pass("sum"), (row,)),), 1024)
    assert compiled_program(program).objects
    monkeypatch.setattr(compiling, "OF_C", frozenset())
    with pytest.raises(LoweringError, match="of the program would call mem"):
        compiled_program(program)
