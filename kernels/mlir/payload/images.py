"""Images and filters in the order in which vectors of convolutions of few channels read them.

A strided convolution of planes reads lines split by the index modulo the stride, so that pixels of
neighbouring outputs are contiguous. With x the index of a pixel, s the stride and p the padding,
tap k of output o reads x = s o + k - p. The image is seen as [x mod s, x div s], and the filter
begins with as many zeros as make p whole strides: tap k = s turn + tap then finds its pixel in
plane `tap`, `turn` pixels after that of the first tap.

With channels last, a vector of the result holds the channels of several groups, and each lane
multiplies the j-th channel of its own group. No transform makes such a vector, so an op of the
payload spreads the channels: the image is seen as [groups, channels of a group], and the op has,
for each j, a factor for every channel of the result. Scripts compute it where a register tile reads
it.
"""

from dataclasses import dataclass

from tilewise.kernels.mlir.payload.factors import factor_type
from tilewise.kernels.mlir.payload.tensors import (
    Shape,
    cropped,
    gathered,
    padded,
    reshape,
    tensor,
    zero_of,
)
from tilewise.kernels.nest import nest_of
from tilewise.kernels.problem import Convolution, Problem

TAPS = ("turn", "tap")


@dataclass(frozen=True)
class SplitLines:
    """How the lines of an image and of a filter are split.

    Attributes:
        stride: the number of parts of a line.
        lead: zeros before the taps of a line of the filter.
        turns: strides that the taps of a line take with those zeros.
        low: pixels of padding before each part.
        padded, read: the padded shape [n, ci, h, stride, pixels], and what of it is read.
    """

    stride: int
    lead: int
    turns: int
    low: int
    padded: Shape
    read: Shape

    @classmethod
    def of(cls, problem: Problem) -> "SplitLines":
        """Return those of a problem that `splits_lines`."""
        (*planes, height, width), (*_, oh, ow) = (problem.operand_shapes[name] for name in "AC")
        (down, stride), (kh, kw), pads = problem.strides, problem.window, problem.pads
        lead = -pads.left % stride
        low = (pads.left + lead) // stride
        turns = -(-(lead + kw) // stride)
        pixels = ow - 1 + turns
        lines = (oh - 1) * down + kh
        whole = max(pixels, low + width // stride)
        return cls(
            stride,
            lead,
            turns,
            low,
            (*planes, height + pads.top + pads.bottom, stride, whole),
            (*planes, lines, stride, pixels),
        )

    @property
    def reach(self) -> int:
        """The pixels from the first tap's to the last one that whole turns read."""
        return self.turns * self.stride - 1 - self.lead


def splits_lines(problem: Problem) -> bool:
    """Return whether lines are split, because vectors would read pixels at a distance.

    That takes whole strides, contiguous taps, groups of one channel of the image, and outputs that
    each find a pixel.
    """
    nest = nest_of(problem)
    across = problem.strides[1]
    strides = nest.group > 0 and problem.has_channels_first and across > 1
    width = problem.operand_shapes["A"][-1]
    is_regular = problem.dilations == (1, 1) and width % across == 0
    finds_pixels = max(problem.pads) < min(problem.window)
    return strides and is_regular and finds_pixels and nest.dim(nest.k).extent == 1


def pads_split_lines(problem: Problem) -> bool:
    """Return whether zeros surround the parts."""
    return SplitLines.of(problem).padded != _parts(problem)


def pads_taps(problem: Problem) -> bool:
    """Return whether zeros surround the taps of a line of the filter."""
    split = SplitLines.of(problem)
    return split.turns * split.stride != problem.window[1]


def _parts(problem: Problem) -> Shape:
    (*lines, width), stride = problem.operand_shapes["A"], problem.strides[1]
    return *lines, stride, width // stride


def split_image(problem: Problem) -> tuple[list[str], str, Shape]:
    """Return lines that split those of %A and pad the parts, the value and its shape."""
    split, parts, dtype = SplitLines.of(problem), _parts(problem), factor_type(problem).name
    pairs = (*parts[:3], parts[4], parts[3])
    kinds = [tensor(shape, dtype) for shape in (pairs, parts)]
    lines = [
        *reshape("%A", "%strides", problem.operand_shapes["A"], pairs, dtype),
        f"%unset = tensor.empty() : {kinds[1]}",
        f"%parted = linalg.transpose ins(%strides : {kinds[0]}) outs(%unset : {kinds[1]}) "
        "permutation = [0, 1, 2, 4, 3]",
    ]
    value = "%parted"
    if pads_split_lines(problem):
        low = (0, 0, problem.pads.top, 0, split.low)
        lines += padded(value, "%padded", parts, split.padded, low, zero_of(factor_type(problem)))
        value = "%padded"
    if split.read != split.padded:
        lines += cropped(value, split.padded, split.read, dtype)
        value = "%cropped"
    return lines, value, split.read


def split_filter(problem: Problem, seen: Shape) -> tuple[list[str], str, Shape]:
    """Return lines that pad the taps of %B's lines, the value and its shape to view as `seen`."""
    split, dtype = SplitLines.of(problem), factor_type(problem).name
    stored = (*seen[:-2], problem.window[1])
    whole = (*seen[:-2], split.turns * split.stride)
    lines = reshape("%B", "%taps", problem.operand_shapes["B"], stored, dtype)
    value = "%taps" if lines else "%B"
    if not pads_taps(problem):
        return lines, value, stored
    low = (*(0 for _ in seen[:-2]), split.lead)
    zeros = padded(value, "%turns", stored, whole, low, zero_of(factor_type(problem)))
    return [*lines, *zeros], "%turns", whole


def spreads_channels(problem: Problem) -> bool:
    """Return whether lanes need channels in another order than the image's."""
    nest = nest_of(problem)
    several = max(nest.group, nest.dim(nest.k).extent) > 1
    return nest.group > 0 and not problem.has_channels_first and several


def has_grouped_planes(problem: Problem) -> bool:
    """Return whether an op reads several planes of the image for each of the result, in place."""
    nest = nest_of(problem)
    several = nest.group > 0 and nest.dim(nest.k).extent > 1
    return several and problem.has_channels_first and problem.strides == (1, 1)


def grouped_image(problem: Convolution, shape: Shape, read: Shape) -> tuple[list[str], str]:
    """Return lines that view %A as `shape`, with its groups, pad and crop it to `read`; the value.

    With nothing between the padding and its reader, a script can copy both together.
    """
    dtype, pads = factor_type(problem).name, problem.pads
    lines = reshape("%A", "%groups", problem.operand_shapes["A"], shape, dtype)
    value = "%groups" if lines else "%A"
    if problem.is_padded:
        first = len(shape) - 2 if problem.has_channels_first else 1
        low, high = (
            (0,) * first + side + (0,) * (len(shape) - first - 2) for side in (pads.low, pads.high)
        )
        whole = tuple(map(sum, zip(shape, low, high, strict=True)))
        lines += padded(value, "%padded", shape, whole, low, zero_of(factor_type(problem)))
        value, shape = "%padded", whole
    if shape != read:
        lines += cropped(value, shape, read, dtype)
        value = "%cropped"
    return lines, value


def spread_image(problem: Convolution, read: Shape, seen: Shape) -> tuple[list[str], str, Shape]:
    """Return lines that pad, crop and spread %A, the value and its shape.

    `read` is what is read of the padded image, [n, h, w, ci]; `seen` is the shape of the spread
    one, [n, h, w, ci of a group, co], without ci if that is 1.
    """
    dtype, groups = factor_type(problem).name, problem.groups
    inputs, outputs = problem.ci // groups, problem.co // groups
    channels = (groups, *((inputs,) if inputs > 1 else ()))
    taken: Shape = (*read[:-1], *channels)
    lines, value = grouped_image(problem, (*problem.operand_shapes["A"][:-1], *channels), taken)
    several = (("ci", inputs), ("co", groups), ("f", outputs))
    behind = {dim: extent for dim, extent in several if dim == "co" or extent > 1}
    dims = ("n", "h", "w", *behind)
    image = ", ".join(("n", "h", "w", "co", *(("ci",) if inputs > 1 else ())))
    whole = (*taken[:3], *behind.values())
    lines += gathered("%spread", value, taken, image, dims, whole, dtype)
    merged = reshape("%spread", "%lanes", whole, seen, dtype)
    return [*lines, *merged], "%lanes" if merged else "%spread", seen
