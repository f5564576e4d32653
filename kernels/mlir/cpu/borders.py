"""Interior and border regions of the result of a convolution with few channels in a group.

A region has a static size. Either all its taps are in the image, which is then read in place, or
its position determines which taps are, and the others are left out.
"""

from dataclasses import dataclass, replace

from tilewise.kernels.mlir.payload.images import SplitLines, splits_lines
from tilewise.kernels.problem import Problem


@dataclass(frozen=True)
class ImageAxis:
    """One direction of the image, in pixels; `reach` is from the first tap to the last one."""

    extent: int
    stride: int
    reach: int
    pad: int

    def is_inside(self, first: int, last: int) -> bool:
        """Return whether outputs from `first` to `last` find all their taps in the image."""
        return (
            first * self.stride >= self.pad
            and last * self.stride + self.reach < self.extent + self.pad
        )


def axes(problem: Problem) -> dict[str, ImageAxis]:
    """Return where outputs find their taps, by the dim of the result."""
    down, across = (
        by * (taps - 1) for by, taps in zip(problem.dilations, problem.window, strict=True)
    )
    if splits_lines(problem):
        across = SplitLines.of(problem).reach
    height, width = (problem.operand_shapes["A"][axis] for axis in problem.spatial_axes)
    return {
        "oh": ImageAxis(height, problem.strides[0], down, problem.pads.top),
        "ow": ImageAxis(width, problem.strides[1], across, problem.pads.left),
    }


@dataclass(frozen=True)
class OutputPart:
    """Outputs of one dim, with `start` if some of them read padding."""

    extent: int
    start: int | None = None


@dataclass(frozen=True)
class Region:
    """A part of the result.

    Attributes:
        result, product: handles of the op that writes it to C, and of the contraction.
        extents: of every dim.
        starts: the first output along each dim that may read padding.
    """

    result: str
    product: str
    extents: dict[str, int]
    starts: dict[str, int]

    def part(self, dim: str, part: OutputPart) -> "Region":
        """Return a part of it along `dim`."""
        starts = {d: s for d, s in self.starts.items() if d != dim}
        if part.start is not None:
            starts[dim] = part.start
        return replace(self, extents={**self.extents, dim: part.extent}, starts=starts)


def parts(
    extent: int, size: int, lanes: int, start: int | None, axis: ImageAxis | None
) -> list[OutputPart]:
    """Return blocks of `size`: equal ones together, those that read padding alone.

    The rest is split after its last whole vector of `lanes`.
    """
    found: list[OutputPart] = []
    whole = extent - extent % size
    vectors = (extent - whole) // lanes * lanes
    at = 0
    for end in (*range(size, whole + 1, size), whole + vectors, extent):
        if end == at:
            continue
        place = None
        if start is not None and axis and not axis.is_inside(start + at, start + end - 1):
            place = start + at
        last = found[-1] if found else None
        if last and place is None is last.start and end - at == size:
            found[-1] = OutputPart(last.extent + size)
        else:
            found.append(OutputPart(end - at, place))
        at = end
    return found
