"""Text of operations on tensors: views in other shapes, padding, crops, and `linalg.generic`."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import prod

from tilewise.kernels.problem import DType

Shape = tuple[int, ...]


def tensor(shape: Shape, element: str) -> str:
    """Return the type of a tensor."""
    return f"tensor<{'x'.join(map(str, shape))}x{element}>"


def mlir_type(name: str) -> str:
    """Return MLIR's name of an element type: integers have no sign, those of 4 bits take a byte."""
    return "i8" if name in ("i4", "u4") else name.replace("u", "i")


def affine_map(dims: Sequence[str], results: str) -> str:
    """Return an affine map of `dims`."""
    return f"affine_map<({', '.join(dims)}) -> ({results})>"


def zero_of(element: DType) -> str:
    """Return the zero of an element type as an attribute."""
    return f"{'0.0' if element.is_float else '0'} : {element.name}"


@dataclass(frozen=True)
class TensorOperand:
    """An operand of a `linalg.generic`.

    `indices` are the results of its map, and `name` is its element in the body.
    """

    value: str
    shape: Shape
    element: str
    indices: str
    name: str

    @property
    def kind(self) -> str:
        """The type of the tensor."""
        return tensor(self.shape, self.element)


def generic(
    name: str,
    dims: Sequence[str],
    inputs: Sequence[TensorOperand],
    output: TensorOperand,
    body: Sequence[str],
    reductions: Collection[str] = (),
) -> list[str]:
    """Return the lines of a `linalg.generic` with the iteration dims `dims`."""
    arguments = (*inputs, output)
    maps = ", ".join(affine_map(dims, one.indices) for one in arguments)
    kinds = ", ".join('"reduction"' if dim in reductions else '"parallel"' for dim in dims)
    values = ", ".join(one.value for one in inputs)
    types = ", ".join(one.kind for one in inputs)
    read = f"ins({values} : {types}) " if inputs else ""
    return [
        f"{name} = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}} "
        f"{read}outs({output.value} : {output.kind}) {{",
        f"^bb0({', '.join(f'{one.name}: {one.element}' for one in arguments)}):",
        *(f"  {line}" for line in body),
        f"}} -> {output.kind}",
    ]


def gathered(
    name: str, source: str, seen: Shape, indices: str, dims: Sequence[str], shape: Shape, dtype: str
) -> list[str]:
    """Return lines that make `name`, with elements at `indices` of `source`, of shape `seen`."""
    output = TensorOperand("%unset", shape, dtype, ", ".join(dims), "%o")
    return [
        f"%unset = tensor.empty() : {output.kind}",
        *generic(
            name,
            dims,
            [TensorOperand(source, seen, dtype, indices, "%i")],
            output,
            [f"linalg.yield %i : {dtype}"],
        ),
    ]


def padded(value: str, name: str, shape: Shape, whole: Shape, low: Shape, zero: str) -> list[str]:
    """Return lines that surround a value by zeros: `low` before, the rest of `whole` after."""
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
    """Return lines that drop the end of a value, as %cropped."""
    rank = len(shape)
    return [
        f"%cropped = tensor.extract_slice {value}{[0] * rank} {list(read)} {[1] * rank} : "
        f"{tensor(shape, dtype)} to {tensor(read, dtype)}"
    ]


def reshape(value: str, name: str, shape: Shape, wanted: Shape, element: str) -> list[str]:
    """Return lines that view `value` of `shape` as `name` of the shape `wanted`, row by row.

    MLIR's views merge dims first, then split them. For equal shapes there is no line, and `value`
    is to be used.
    """
    merged, whole, apart = _common(shape, wanted)
    lines = []
    if len(whole) < len(shape):
        target = name if whole == wanted else f"{name}_flat"
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
    """Return the finest shape to which both merge, and the dims that each merges."""
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
