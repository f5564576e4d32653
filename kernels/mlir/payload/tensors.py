"""Views of tensors in other shapes: MLIR has them merge dims first, then take them apart."""

from math import prod

Shape = tuple[int, ...]


def tensor(shape: Shape, element: str) -> str:
    """The type of a tensor."""
    return f"tensor<{'x'.join(map(str, shape))}x{element}>"


def reshape(value: str, name: str, shape: Shape, wanted: Shape, element: str) -> list[str]:
    """Lines that view `value` of `shape` as `name` of the shape `wanted`, row by row the same.

    No line where the shapes are equal; `value` is to be used then.
    """
    merged, whole, apart = _common(shape, wanted)
    lines = []
    if len(whole) < len(shape):
        last = whole == wanted
        target = name if last else f"{name}_flat"
        lines.append(
            f"{target} = tensor.collapse_shape {value} {merged} : "
            f"{tensor(shape, element)} into {tensor(whole, element)}"
        )
        value = target
    if len(whole) < len(wanted):
        lines.append(
            f"{name} = tensor.expand_shape {value} {apart} output_shape {list(wanted)} : "
            f"{tensor(whole, element)} into {tensor(wanted, element)}"
        )
    return lines


def _common(shape: Shape, wanted: Shape) -> tuple[list[list[int]], Shape, list[list[int]]]:
    """The finest shape that both come from by merging dims, and the dims that each merges."""
    merged: list[list[int]] = []
    apart: list[list[int]] = []
    at = to = 0
    while at < len(shape) and to < len(wanted):
        first, second = [at], [to]
        while (left := _size(shape, first)) != (right := _size(wanted, second)):
            if left < right:
                at += 1
                first.append(at)
            else:
                to += 1
                second.append(to)
        merged.append(first)
        apart.append(second)
        at, to = at + 1, to + 1
    # what is left of either has extent 1
    merged[-1] += range(at, len(shape))
    apart[-1] += range(to, len(wanted))
    return merged, tuple(_size(shape, dims) for dims in merged), apart


def _size(shape: Shape, dims: list[int]) -> int:
    return prod(shape[dim] for dim in dims)
