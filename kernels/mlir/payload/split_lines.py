"""Planes that a strided convolution reads: lines parted by what the stride leaves of an index.

Pixels that neighbouring outputs read are neighbours then. With x the index of a pixel, s the
stride and p the padding, tap k of output o reads x = s o + k - p. The image is seen as
[x mod s, x div s], and the filter begins with as many zeros as make p whole strides: behind them
tap k = s turn + tap finds its pixel in plane `tap`, `turn` pixels after that of the first tap.
"""

from dataclasses import dataclass

from tilewise.kernels.mlir.payload.reshape import Shape, reshape, tensor
from tilewise.kernels.nest import nest_of
from tilewise.kernels.problem import Problem

TAPS = ("turn", "tap")


@dataclass(frozen=True)
class SplitLines:
    """How the lines of an image and of a filter are parted.

    Attributes:
        stride: of the convolution, the number of parts of a line.
        lead: zeros before the taps of a line of the filter.
        turns: strides that the taps of a line take with those zeros.
        low: pixels of padding before each part.
        padded: the image's shape with padding, [n, ci, h, stride, pixels].
        read: what of that is read.
    """

    stride: int
    lead: int
    turns: int
    low: int
    padded: Shape
    read: Shape

    @classmethod
    def of(cls, problem: Problem) -> "SplitLines":
        """Those of a problem that `splits_lines`."""
        (*planes, height, width), (*_, oh, ow) = (problem.operand_shapes[name] for name in "AC")
        stride, (kh, kw) = problem.stride, problem.window
        lead = -problem.pad % stride
        low = (problem.pad + lead) // stride
        turns = -(-(lead + kw) // stride)
        pixels = ow - 1 + turns
        lines = (oh - 1) * stride + kh
        whole = max(pixels, low + width // stride)
        return cls(
            stride,
            lead,
            turns,
            low,
            (*planes, height + 2 * problem.pad, stride, whole),
            (*planes, lines, stride, pixels),
        )

    @property
    def reach(self) -> int:
        """Pixels from the one that the first tap reads to the last one that whole turns read."""
        return self.turns * self.stride - 1 - self.lead


def splits_lines(problem: Problem) -> bool:
    """Whether lines are parted: those whose vectors would read pixels that lie apart.

    That takes whole strides, taps in a row, groups of one channel of the image, and outputs that
    find a pixel each.
    """
    nest = nest_of(problem)
    strides = nest.group > 0 and problem.has_channels_first and problem.stride > 1
    width = problem.operand_shapes["A"][-1]
    is_regular = problem.dilation == 1 and width % problem.stride == 0
    finds_pixels = problem.pad < min(problem.window)
    return strides and is_regular and finds_pixels and nest.dim(nest.k).extent == 1


def pads_split_lines(problem: Problem) -> bool:
    """Whether there are zeros around the parts."""
    return SplitLines.of(problem).padded != _parts(problem)


def pads_taps(problem: Problem) -> bool:
    """Whether there are zeros around the taps of a line of the filter."""
    split = SplitLines.of(problem)
    return split.turns * split.stride != problem.window[1]


def _parts(problem: Problem) -> Shape:
    (*lines, width), stride = problem.operand_shapes["A"], problem.stride
    return *lines, stride, width // stride


def split_image(problem: Problem) -> tuple[list[str], str, Shape]:
    """Lines that part %A and pad the parts; the value and its shape."""
    split, parts, dtype = SplitLines.of(problem), _parts(problem), problem.element.name
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
        low = (0, 0, problem.pad, 0, split.low)
        lines += padded(value, "%padded", parts, split.padded, low, _zero(problem))
        value = "%padded"
    if split.read != split.padded:
        lines += cropped(value, split.padded, split.read, dtype)
        value = "%cropped"
    return lines, value, split.read


def split_filter(problem: Problem, seen: Shape) -> tuple[list[str], str, Shape]:
    """Lines that pad the taps of %B's lines; the value and its shape, for a view as `seen`."""
    split, dtype = SplitLines.of(problem), problem.element.name
    stored = (*seen[:-2], problem.window[1])
    whole = (*seen[:-2], split.turns * split.stride)
    lines = reshape("%B", "%taps", problem.operand_shapes["B"], stored, dtype)
    value = "%taps" if lines else "%B"
    if not pads_taps(problem):
        return lines, value, stored
    low = (*(0 for _ in seen[:-2]), split.lead)
    return [*lines, *padded(value, "%turns", stored, whole, low, _zero(problem))], "%turns", whole


def _zero(problem: Problem) -> str:
    """The element of zeros, as an attribute."""
    return f"{'0.0' if problem.element.is_float else '0'} : {problem.element.name}"


def padded(value: str, name: str, shape: Shape, whole: Shape, low: Shape, zero: str) -> list[str]:
    """Lines that put zeros around a value: `low` before it, the rest of `whole` behind it."""
    high = [all_ - own - first for all_, own, first in zip(whole, shape, low, strict=True)]
    indices = ", ".join(f"%i{dim}: index" for dim in range(len(shape)))
    dtype = zero.rpartition(" ")[2]
    return [
        f"{name}_zero = arith.constant {zero}",
        f"{name} = tensor.pad {value} low{list(low)} high{high} {{",
        f"^bb0({indices}):",
        f"  tensor.yield {name}_zero : {dtype}",
        f"}} : {tensor(shape, dtype)} to {tensor(whole, dtype)}",
    ]


def cropped(value: str, shape: Shape, read: Shape, dtype: str) -> list[str]:
    """Lines that leave out the end of a value, as %cropped."""
    rank = len(shape)
    return [
        f"%cropped = tensor.extract_slice {value}{[0] * rank} {list(read)} {[1] * rank} : "
        f"{tensor(shape, dtype)} to {tensor(read, dtype)}"
    ]
