"""Passes compute what NumPy does, on parts of their rows, and write nowhere else."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.cases import some
from tilewise.kernels.native.conversion import Conversion, moves_of
from tilewise.kernels.native.passes.passes import Chain, pass_of
from tilewise.kernels.oracle.operands import poison

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


def guarded(shape: tuple[int, ...], kind: type[Any]) -> Array:
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
    some(product([(1, 45), (1, 12), (21, 5), (6, 5)], [1, 2, 3], [1, 2]), of=5),
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
        made, around = guarded((3, *out, inner), np.float32), np.full(x.size + 2, np.nan, "f4")
        around[1:-1] = x.reshape(-1)
        untouched = made.copy().reshape(rows, -1)[cut:]
        run(name, around[1:], made, (0, cut), *sizes)
        assert np.array_equal(made.reshape(rows, -1)[cut:], untouched)
        run(name, around[1:], made, (cut, rows), *sizes)
        taps = windows(x, (3, 3), (2, step), (dilation, dilation), (1, 1), fill, out)
        np.testing.assert_allclose(made, reduced(taps, -1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("inner", [1, 6])
def test_sums_of_axes(inner: int) -> None:
    x, made = values(7, 49, inner), guarded((7, inner), np.float32)
    run("sum", x, made, (0, 3), 49, inner)
    run("sum", x, made, (3, 7), 49, inner)
    np.testing.assert_allclose(made, x.sum(1), rtol=1e-5, atol=1e-5)


def test_a_copy_of_words() -> None:
    x, made = values(101), guarded((101,), np.float32)
    run("copy", x, made, (0, 50))
    run("copy", x, made, (50, 100))
    assert np.array_equal(made[:100], x[:100])
    assert made[100:].view(np.uint8).tolist() == [0xC5] * 4


@pytest.mark.full
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_copies(size: int, order: tuple[int, ...]) -> None:
    kind = {2: np.uint16, 4: np.uint32}[size]
    conversion = Conversion((3, 5, 19), (0, 1, 2), order, (0, 1, 1))
    source = RNG.integers(1, 250, (3, 5, 19)).astype(kind)
    made, moves = np.zeros(conversion.target_shape, kind), moves_of(conversion)
    rows = len(moves.froms)
    blocks = () if moves.steps is None else (moves.lengths[1], *moves.steps)
    offsets = moves.froms.ctypes.data, moves.tos.ctypes.data
    more = (*offsets, moves.lengths[0], source.size, made.size, *blocks)
    for part in ((0, 1), (1, rows)):
        run(f"{'rows' if moves.steps is None else 'blocks'} {size}", source, made, part, *more)
    expected = np.pad(source, [(0, 0), (1, 1), (1, 1)]).transpose(order)
    assert np.array_equal(made, expected)


def test_a_fill() -> None:
    made = guarded((9,), np.float32)
    run("fill", made, made, (0, 8), float("-inf"))
    assert made[:8].tolist() == [-np.inf] * 8
    assert np.isfinite(made[8])
