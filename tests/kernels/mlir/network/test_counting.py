"""Which packs move data, beside what NumPy makes of the same."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")

from iree.compiler import ir

from tilewise.kernels.mlir.network.child.origins import Origins, count


@st.composite
def packs(draw: Any) -> tuple[tuple[int, ...], tuple[int, ...], dict[int, int]]:
    """A shape, an order of its axes, and blocks of some of them."""
    rank = draw(st.integers(1, 4))
    order = tuple(draw(st.permutations(range(rank))))
    positions = draw(st.lists(st.integers(0, rank - 1), min_size=1, unique=True))
    blocks = {at: draw(st.sampled_from([1, 2, 3])) for at in positions}
    shape = [draw(st.sampled_from([1, 2, 3])) for _ in range(rank)]
    return tuple(n * blocks.get(i, 1) for i, n in enumerate(shape)), order, blocks


@pytest.mark.full
@settings(max_examples=60, deadline=None)
@given(packs())
def test_a_reshape_leaves_elements_where_they_lie(
    drawn: tuple[tuple[int, ...], tuple[int, ...], dict[int, int]],
) -> None:
    shape, order, blocks = drawn
    split = [(n // blocks.get(i, 1), blocks.get(i, 1)) for i, n in enumerate(shape)]
    numbers = np.arange(np.prod(shape)).reshape([size for pair in split for size in pair])
    inner = [*blocks, *(i for i in range(len(shape)) if i not in blocks)]
    moved = numbers.transpose([*(2 * i for i in order), *(2 * i + 1 for i in inner)])
    lies = moved.reshape([*(split[i][0] for i in order), *blocks.values()])
    assert counted(shape, order, blocks, lies.shape) == bool(
        (lies.reshape(-1) == np.arange(lies.size)).all()
    )


def counted(
    shape: tuple[int, ...], order: tuple[int, ...], blocks: dict[int, int], into: tuple[int, ...]
) -> bool:
    plain, packed = (f"tensor<{'x'.join(map(str, one))}xf32>" for one in (shape, into))
    text = f"""func.func @f(%x: {plain}, %e: {packed}) -> {packed} {{
      %p = linalg.pack %x outer_dims_perm = {list(order)} inner_dims_pos = {list(blocks)}
        inner_tiles = {list(blocks.values())} into %e : {plain} -> {packed}
      return %p : {packed}
    }}"""
    with ir.Context(), ir.Location.unknown():
        (one,) = count(ir.Module.parse(text), Origins())
    return one.is_reshape
