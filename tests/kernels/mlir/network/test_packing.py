"""How single ops are packed: sizes of blocks, orders of axes, and what is refused."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewise.kernels.mlir.frontend.nest import NestOperand, NestRefusedError
from tilewise.kernels.mlir.network.packing import (
    LEAST,
    AxisOrder,
    Blocks,
    OpBlocks,
    OpShape,
    block_of,
    packed,
)

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")


@given(st.integers(1, 5000), st.integers(0, 64))
def test_a_block_is_the_largest_divisor_that_is_a_vector(extent: int, most: int) -> None:
    divisors = [size for size in range(LEAST, most + 1, LEAST) if extent % size == 0]
    assert block_of(extent, most) == (divisors[-1] if divisors else 0)


def operand(text: str, sizes: dict[int, int]) -> NestOperand:
    """`0 1+4` with the loops' lengths."""
    axes = [tuple((int(dim), 1) for dim in axis.split("+")) for axis in text.split()]
    shape = [sum(sizes[dim] - 1 for dim, _ in axis) + 1 for axis in axes]
    return NestOperand(tuple(axes), tuple(shape))


def op(
    a: str, b: str, c: str, *extents: int, has_weights: bool = True, is_pool: bool = False
) -> OpShape:
    sizes = dict(enumerate(extents))
    first, second, result = (operand(text, sizes) for text in (a, b, c))
    return OpShape("linalg.x", 0, "@f", extents, (first, second), result, has_weights, is_pool)


NHWC = op("0 1+4 2+5 6", "4 5 6 3", "0 1 2 3", 1, 8, 8, 32, 3, 3, 24)
NCHW = op("0 4 2+5 3+6", "1 4 5 6", "0 1 2 3", 1, 32, 8, 8, 24, 3, 3)
DEPTHWISE = op("0 1+4 2+5 3", "4 5 3", "0 1 2 3", 1, 8, 8, 32, 3, 3)
POOL = op("0 1+4 2+5 3", "4 5", "0 1 2 3", 4, 8, 8, 32, 3, 3, is_pool=True)
GROUPS = op("0 1 5 3+6 4+7", "1 2 5 6 7", "0 1 2 3 4", 1, 8, 16, 9, 9, 32, 3, 3)
PRODUCT = op("0 2", "2 1", "0 1", 12, 32, 20)


@pytest.mark.parametrize(("what", "sizes", "orders"), [
    (NHWC, (0, 0, 0, 16, 0, 0, 12),
     (AxisOrder((0, 3, 1, 2)), AxisOrder((3, 2, 0, 1), (1, 0)), AxisOrder((0, 3, 1, 2)))),
    (NCHW, (0, 16, 0, 0, 12, 0, 0), (AxisOrder(), AxisOrder((), (1, 0)), AxisOrder())),
    (DEPTHWISE, (0, 0, 0, 16, 0, 0),
     (AxisOrder((0, 3, 1, 2)), AxisOrder((2, 0, 1)), AxisOrder((0, 3, 1, 2)))),
    (POOL, (0, 0, 0, 16, 0, 0),
     (AxisOrder((0, 3, 1, 2)), AxisOrder(), AxisOrder((0, 3, 1, 2)))),
    (GROUPS, (0, 0, 16, 0, 0, 16, 0, 0), (AxisOrder(), AxisOrder((), (1, 0)), AxisOrder())),
    (PRODUCT, (0, 16, 4), (AxisOrder(), AxisOrder((1, 0), (1, 0)), AxisOrder())),
], ids=["nhwc", "nchw", "depthwise", "pool", "groups", "product"])  # fmt: skip
def test_orders_of_images_and_weights(what, sizes, orders) -> None:
    found = packed(what, Blocks(16))
    assert (found.sizes, found.orders) == (sizes, orders)


def test_rows_have_blocks_where_they_are_wished_for() -> None:
    assert packed(PRODUCT, Blocks(16, rows=8)).sizes == (4, 16, 4)
    assert packed(PRODUCT, Blocks(), OpBlocks(4, 8, 0)).sizes == (4, 8, 0)


@pytest.mark.parametrize(("what", "wished", "message"), [
    (op("0 2", "2 1", "0 1", 3, 7, 11), None, "blocks divide .columns 7, depth 11, rows 3"),
    (op("0 2", "2 1", "0 1", 8, 8, 8, has_weights=False), None, "every run computes"),
    (PRODUCT, OpBlocks(5, 0, 0), "rows of 12, which blocks of 5 do not divide"),
])  # fmt: skip
def test_what_cannot_be_packed_is_told(what: OpShape, wished: OpBlocks, message: str) -> None:
    with pytest.raises(NestRefusedError, match=message):
        packed(what, Blocks(), wished)


def test_two_activations_are_packed_as_they_lie_where_that_is_wished_for() -> None:
    both = op("0 1 3", "0 3 2", "0 1 2", 2, 8, 16, 8, has_weights=False)
    found = packed(both, Blocks(), OpBlocks(0, 8, 4))
    assert found.sizes == (0, 0, 8, 4)
    assert found.orders == (AxisOrder(), AxisOrder((), (1, 0)), AxisOrder())


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
def test_a_reshape_leaves_elements_where_they_lie(drawn) -> None:
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
    from iree.compiler import ir

    from tilewise.kernels.mlir.network.child.origins import Origins, count

    plain, packed = (f"tensor<{'x'.join(map(str, one))}xf32>" for one in (shape, into))
    text = f"""func.func @f(%x: {plain}, %e: {packed}) -> {packed} {{
      %p = linalg.pack %x outer_dims_perm = {list(order)} inner_dims_pos = {list(blocks)}
        inner_tiles = {list(blocks.values())} into %e : {plain} -> {packed}
      return %p : {packed}
    }}"""
    with ir.Context(), ir.Location.unknown():
        (one,) = count(ir.Module.parse(text), Origins())
    return one.is_reshape
