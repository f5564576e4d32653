"""Pixels whose channels are spread over the channels of the result that each group has.

With channels last, a vector of the result holds the channels of several groups, and each of its
lanes multiplies the j-th channel of its own group. No transform makes such a vector of what lies in
the image, so the payload says it: the image is seen as [groups, channels of a group], and an op of
its own has, for each j, a factor for every channel of the result. Scripts compute that op where a
register tile reads it.
"""

from tilewise.kernels.mlir.payload.reshape import Shape, reshape, tensor
from tilewise.kernels.mlir.payload.split_lines import cropped, padded
from tilewise.kernels.nest import nest_of
from tilewise.kernels.problem import Conv2d, Problem


def spreads_channels(problem: Problem) -> bool:
    """Whether lanes want channels in an order in which the image does not have them."""
    nest = nest_of(problem)
    several = max(nest.group, nest.dim(nest.k).extent) > 1
    return nest.group > 0 and not problem.has_channels_first and several


def has_grouped_planes(problem: Problem) -> bool:
    """Whether an op reads several planes of the image for each of the result, where they lie."""
    nest = nest_of(problem)
    several = nest.group > 0 and nest.dim(nest.k).extent > 1
    return several and problem.has_channels_first and problem.stride == 1


def grouped_image(problem: Conv2d, shape: Shape, read: Shape) -> tuple[list[str], str]:
    """Lines that see %A in a shape with its groups, pad and crop it; the value.

    With nothing between the padding and what reads it, a script can copy one with the other.

    Args:
        problem: of few channels in a group.
        shape: of the image, its channels taken apart.
        read: what of that, padded, is read.
    """
    dtype, pad = problem.dtype, problem.pad
    lines = reshape("%A", "%groups", problem.operand_shapes["A"], shape, dtype)
    value = "%groups" if lines else "%A"
    if pad:
        first = len(shape) - 2 if problem.has_channels_first else 1
        low = tuple(pad if first <= dim < first + 2 else 0 for dim in range(len(shape)))
        whole = tuple(extent + 2 * more for extent, more in zip(shape, low, strict=True))
        zero = f"{'0.0' if problem.element.is_float else '0'} : {dtype}"
        lines += padded(value, "%padded", shape, whole, low, zero)
        value, shape = "%padded", whole
    if shape != read:
        lines += cropped(value, shape, read, dtype)
        value = "%cropped"
    return lines, value


def spread_image(problem: Conv2d, read: Shape, seen: Shape) -> tuple[list[str], str, Shape]:
    """Lines that pad, crop and spread %A; the value and its shape.

    Args:
        problem: one that `spreads_channels`.
        read: what is read of the padded image, [n, h, w, ci].
        seen: the shape of what is spread, [n, h, w, ci of a group, co]; no ci where it is 1.
    """
    dtype, inputs = problem.dtype, problem.ci // problem.groups
    channels = (problem.groups, *((inputs,) if inputs > 1 else ()))
    taken: Shape = (*read[:-1], *channels)
    lines, value = grouped_image(problem, (*problem.operand_shapes["A"][:-1], *channels), taken)
    outputs = problem.co // problem.groups
    several = (("ci", inputs), ("co", problem.groups), ("f", outputs))
    behind = [(dim, extent) for dim, extent in several if dim == "co" or extent > 1]
    dims = ("n", "h", "w", *(dim for dim, _ in behind))
    image = ("n", "h", "w", "co", *(("ci",) if inputs > 1 else ()))
    maps = ", ".join(
        f"affine_map<({', '.join(dims)}) -> ({', '.join(results)})>" for results in (image, dims)
    )
    kinds = ", ".join(['"parallel"'] * len(dims))
    whole = (*taken[:3], *(extent for _, extent in behind))
    result = tensor(whole, dtype)
    lines += [
        f"%unset = tensor.empty() : {result}",
        f"%spread = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}} "
        f"ins({value} : {tensor(taken, dtype)}) outs(%unset : {result}) {{",
        f"^bb0(%i: {dtype}, %o: {dtype}):",
        f"  linalg.yield %i : {dtype}",
        f"}} -> {result}",
    ]
    merged = reshape("%spread", "%lanes", whole, seen, dtype)
    return [*lines, *merged], "%lanes" if merged else "%spread", seen
