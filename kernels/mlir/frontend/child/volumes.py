"""Split convolutions of volumes: a sum over the filter's depth of convolutions of images.

For each tap along the depth, the slices of the volume that it reads are images of one `conv2d`,
which adds to the sums of the taps before it. Slices have to follow each other, so volumes with
channels before the depth are transposed once, and so is their result.
"""

from dataclasses import dataclass
from typing import Any

from tilewise.kernels.mlir.frontend.child.bodies import convolution_of
from tilewise.kernels.mlir.frontend.child.fusion import unpadded
from tilewise.kernels.mlir.frontend.child.values import Structured, splat
from tilewise.kernels.mlir.frontend.child.writing import Writer, Written, index, region_of, written
from tilewise.kernels.mlir.frontend.nest import ContractionNest, NestOperand, dims_of, slides

WINDOWS = 3
TERMS = 2  # of a window: an output and a tap


@dataclass(frozen=True)
class _Volume:
    """A convolution of volumes.

    Attributes:
        nest: of the volume, the filter and the result.
        values: the volume without its zeros, the filter, and what the sums start from.
        low, high: zeros around the volume on each axis.
        depth, tap: the volume's and the filter's axis of depth.
        out, along: the loops along the result's and the filter's depth.
        step, dilation: slices between outputs, and between taps.
        image: which input of the op the volume is.
    """

    op: Structured
    nest: ContractionNest
    values: tuple[Any, Any, Any]
    low: list[int]
    high: list[int]
    depth: int
    tap: int
    out: int
    along: int
    step: int
    dilation: int
    image: int


def split_volume(op: Any) -> tuple[str, tuple[Any, ...]] | None:
    """Return what replaces a convolution of volumes: a function and its operands."""
    volume = _volume(op)
    return None if volume is None else (_Slices(volume).text(), volume.values)


def _volume(op: Any) -> _Volume | None:
    """Return how an op convolves volumes; None if it does not, or in groups."""
    found = convolution_of(op)
    if found is None:
        return None
    seen, nest, image = found
    windows = [i for i, axis in enumerate(nest.a.axes) if slides(axis)]
    has_groups = any(nest.has_length(dim) for dim in nest.a.dims & nest.b.dims & nest.c.dims)
    depth = windows[0]
    if len(windows) != WINDOWS or has_groups or len(nest.a.axes[depth]) != TERMS:
        return None
    terms = sorted(nest.a.axes[depth], key=lambda term: term[0] not in nest.c.dims)
    (out, step), (along, dilation) = terms
    if out not in nest.c.dims or along not in nest.b.dims or out in nest.b.dims:
        return None
    source, low, high = unpadded(seen.inputs[image])
    return _Volume(
        seen, nest, (source, seen.inputs[1 - image], seen.init), low, high, depth,
        nest.b.axes.index(((along, 1),)), out, along, step, dilation, image,
    )  # fmt: skip


class _Slices(Writer):
    """Writes the function `(volume, filter, init) -> result` of a convolution."""

    def __init__(self, volume: _Volume) -> None:
        super().__init__()
        self._volume = volume
        self._given = written(volume.values)

    def text(self) -> str:
        """Return the function."""
        volume, (x, w, init) = self._volume, self._given
        nest = volume.nest
        images = dims_of(axis for axis in nest.a.axes if not slides(axis)) - nest.b.dims
        orders = [self._depth_first(one, images) for one in (nest.a, nest.c)]
        low, high = ([0 if i != volume.depth else side[i] for i in range(len(side))]
                     for side in (volume.low, volume.high))  # fmt: skip
        x = self.transposed(self.padded(x, low, high), orders[0])
        sums = self.transposed(init, orders[1]) if splat(volume.values[2]) != 0 else self.zeros(
            [init.shape[at] for at in orders[1]], init.kind)  # fmt: skip
        for number in range(nest.extents[volume.along]):
            sums = self._tap(number, x, w, sums, orders)
        back = [orders[1].index(at) for at in range(len(orders[1]))]
        return self.function(self._given, self.transposed(sums, back))

    def _depth_first(self, operand: NestOperand, images: frozenset[int]) -> list[int]:
        """Return the axes of a volume with the depth behind the images, before all others."""
        axes = list(range(len(operand.axes)))
        depth = next(i for i in axes if self._volume.out in {dim for dim, _ in operand.axes[i]})
        lead = [i for i, axis in enumerate(operand.axes)
                if i != depth and not slides(axis) and dims_of([axis]) & images]  # fmt: skip
        return [*lead, depth, *(i for i in axes if i != depth and i not in lead)]

    def _tap(
        self, number: int, x: Written, w: Written, sums: Written, orders: list[list[int]]
    ) -> Written:
        """Return sums with the products of one tap along the depth."""
        volume, nest = self._volume, self._volume.nest
        extents, (order, order_c) = nest.extents, orders
        at, rank = order.index(volume.depth), len(order)
        first, sizes, steps = [0] * rank, list(x.shape), [1] * rank
        first[at], steps[at] = number * volume.dilation, volume.step
        sizes[at] = extents[volume.out]
        image = self.sliced(x, first, sizes, steps)
        low, high = ([0 if i == volume.depth else side[i] for i in order]
                     for side in (volume.low, volume.high))  # fmt: skip
        first, sizes = [0] * len(w.shape), list(w.shape)
        first[volume.tap], sizes[volume.tap] = number, 1
        filters = self.sliced(w, first, sizes, without=volume.tap)
        inputs = [self.padded(image, low, high), filters]
        loops = [dim for dim in range(len(extents)) if dim != volume.along]
        reads = [f"d{volume.out}" if i == volume.depth else index(nest.a.axes[i]) for i in order]
        places = [reads, [index(axis) for i, axis in enumerate(nest.b.axes) if i != volume.tap],
                  [index(nest.c.axes[i]) for i in order_c]]  # fmt: skip
        if volume.image:
            places[:2], inputs = places[1::-1], inputs[::-1]
        names = ", ".join(f"d{dim}" for dim in loops)
        return self.generic([f"({names}) -> ({', '.join(place)})" for place in places], inputs,
                            sums, region_of(volume.op.op),
                            [dim not in nest.c.dims for dim in loops])  # fmt: skip
