"""Linalg ops in one form, and the origins of values: constants, single uses, broadcasts."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

from iree.compiler import ir
from iree.compiler.dialects import linalg

from tilewise.kernels.mlir.frontend.graph import ARGUMENT, SAME_BYTES, VIEWS
from tilewise.kernels.mlir.frontend.nest import (
    Axis,
    ContractionNest,
    NestOperand,
    NestRefusedError,
    dims_of,
)

_MAP = re.compile(r"\(([^)]*)\) -> \((.*)\)")
_TERM = re.compile(r"d(\d+)(?: \* (\d+))?")


@dataclass(frozen=True)
class Structured:
    """A linalg op with one result.

    `maps` are the axes of each input and of the result, None for other indices than sums of dims.
    """

    op: Any
    inputs: tuple[Any, ...]
    init: Any
    maps: tuple[tuple[Axis, ...] | None, ...]

    @property
    def name(self) -> str:
        """Such as `linalg.matmul`."""
        return str(self.op.name)

    @property
    def result(self) -> Any:
        """The tensor that it makes."""
        return self.op.results[0]

    @property
    def body(self) -> Any:
        """The block that computes each element."""
        return self.op.regions[0].blocks[0]

    def operand(self, number: int) -> NestOperand:
        """Return how an operand is accessed; the result is the last one.

        Raise RefusedError unless its indices are sums of dims and its shape is static.
        """
        axes = self.maps[number]
        value = self.inputs[number] if number < len(self.inputs) else self.init
        if axes is None:
            raise NestRefusedError(self._other_index(number))
        return NestOperand(axes, static_shape(value))

    def nest(self) -> ContractionNest:
        """Return the nest of the first two inputs and the result; raise RefusedError as above."""
        operands = self.operand(0), self.operand(1), self.operand(len(self.inputs))
        return ContractionNest(extents(operands), *operands)

    def _other_index(self, number: int) -> str:
        """Return why an operand's index is not supported: it has a constant or a division."""
        found = _MAP.fullmatch(str(linalg.get_indexing_maps(self.op)[number].value))
        at = [one for one in found[2].split(", ") if _axis(one) is None] if found else ["?"]
        what = "writes its result" if number == len(self.inputs) else f"reads input {number + 1}"
        return f"{what} at {', '.join(at)}; known are sums of loop indices times constants"

    @property
    def dims(self) -> tuple[frozenset[int], frozenset[int], frozenset[int]] | None:
        """The loops of the first two inputs and of the result.

        None without two inputs, and for other indices than sums of dims.
        """
        first, second, result = self.maps[0], self.maps[1], self.maps[-1]
        if len(self.inputs) < 2 or first is None or second is None or result is None:
            return None
        return dims_of(first), dims_of(second), dims_of(result)

    @property
    def is_parallel(self) -> bool:
        """Whether no loop reduces: the result has an axis for each dim of the inputs."""
        written = dims_of(self.maps[-1] or ())
        return all(axes is not None and dims_of(axes) <= written for axes in self.maps)

    def is_identity(self, number: int) -> bool:
        """Return whether an operand is read as the result is written, axis by axis."""
        axes = self.maps[number]
        return axes is not None and axes == self.maps[-1] and is_permutation(axes)


def structured(op: Any) -> Structured | None:
    """Return an operation as a linalg op with one result; None if it is not one."""
    if not op.name.startswith("linalg.") or len(op.results) != 1 or not len(op.regions):
        return None
    try:
        maps = linalg.get_indexing_maps(op)
    except (TypeError, ValueError):
        return None
    values = tuple(op.operands)
    if not maps or len(maps) != len(values):
        return None
    return Structured(op, values[:-1], values[-1], axes_of(maps))


def axes_of(maps: Any) -> tuple[tuple[Axis, ...] | None, ...]:
    """Return the axes of each of some affine maps."""
    return tuple(_axes(str(one.value)) for one in maps)


def static_shape(value: Any) -> tuple[int, ...]:
    """Return a tensor's shape, empty for a scalar; raise RefusedError if it is not supported."""
    kind = value.type
    if isinstance(kind, ir.RankedTensorType):
        if not kind.has_static_shape:
            raise NestRefusedError("has dynamic shapes; give --dim NAME=SIZE")
        if 0 in kind.shape:
            raise NestRefusedError("has an axis without elements")
        if kind.encoding is not None:
            raise NestRefusedError(
                "has a tensor with an encoding; give the model with plain tensors"
            )
        return tuple(kind.shape)
    if isinstance(kind, ir.ShapedType):
        raise NestRefusedError("works on buffers; give the model before bufferization, on tensors")
    return ()


def rank(value: Any) -> int:
    """Return the number of a tensor's axes; 0 for anything else."""
    kind = value.type
    return int(kind.rank) if isinstance(kind, ir.RankedTensorType) else 0


def element(value: Any) -> str:
    """Return the element type of a tensor as MLIR writes it."""
    kind = value.type
    return str(kind.element_type if isinstance(kind, ir.ShapedType) else kind)


def extents(operands: Sequence[NestOperand]) -> tuple[int, ...]:
    """Return the lengths of loops from axes that are indexed by one dim alone."""
    found: dict[int, int] = {}
    most = -1
    for operand in operands:
        for axis, size in zip(operand.axes, operand.shape, strict=True):
            most = max(most, *(dim for dim, _ in axis), -1)
            if len(axis) == 1 and axis[0][1] == 1:
                found.setdefault(axis[0][0], size)
    if any(dim not in found for dim in range(most + 1)):
        raise NestRefusedError("has a loop whose length no operand tells")
    return tuple(found[dim] for dim in range(most + 1))


@lru_cache(maxsize=4096)
def _axes(text: str) -> tuple[Axis, ...] | None:
    """Return the axes of a printed map; None if one is not a sum of dims."""
    found = _MAP.fullmatch(text)
    if found is None:
        return None
    results = found[2].split(", ") if found[2] else []
    axes = [_axis(result) for result in results]
    return None if any(axis is None for axis in axes) else tuple(a for a in axes if a is not None)


def _axis(text: str) -> Axis | None:
    if text == "0":
        return ()
    terms = [_TERM.fullmatch(part) for part in text.split(" + ")]
    if any(term is None for term in terms):
        return None
    return tuple((int(term[1]), int(term[2] or 1)) for term in terms if term is not None)


def is_permutation(axes: Sequence[Axis]) -> bool:
    """Return whether each axis is read along a loop of its own, with step 1."""
    dims = [axis[0][0] for axis in axes if len(axis) == 1 and axis[0][1] == 1]
    return len(dims) == len(axes) == len(set(dims))


def permutation(op: Structured) -> tuple[int, ...] | None:
    """Return the input's axis for each axis of a copy, if that may be a transposition."""
    read, written = op.maps
    if read is None or written is None or len(read) != len(written):
        return None
    if not (is_permutation(read) and is_permutation(written)):
        return None
    return tuple(read.index(axis) for axis in written)


MOST_STEPS = 64
RESHAPES = ("tensor.expand_shape", "tensor.collapse_shape")
_CONSTANTS = ("arith.constant", "flow.tensor.constant", "util.unfoldable_constant",
              "ml_program.global_load_const", "torch.vtensor.literal", "tosa.const",
              "stablehlo.constant")  # fmt: skip
_LOADS = ("util.global.load",)
DEQUANTIZED = "iree_linalg_ext.dequantize_affine"
"""Takes a tensor, its scale and its zero point; other lowerings use a linalg op instead."""
_AHEAD = ("linalg.", "tensor.", "arith.", "math.", DEQUANTIZED, *SAME_BYTES)
"""Ops that a compiler computes when it loads a module, if it knows all that they read."""
Number = int | float


def owner(value: Any) -> Any | None:
    """Return the operation that makes a value; None for an argument."""
    found = value.owner  # a view, which may have another `name`
    return None if isinstance(found, ir.Block) else found.operation


def is_empty(value: Any) -> bool:
    """Return whether a value is an uninitialised tensor."""
    maker = owner(value)
    return maker is not None and bool(maker.name == "tensor.empty")


def is_argument(value: Any) -> bool:
    """Return whether a value is an argument of the program, in whatever shape."""
    for _ in range(MOST_STEPS):
        op = owner(value)
        if op is None or op.name == ARGUMENT:
            return True
        if op.name not in SAME_BYTES:
            return False
        value = op.operands[0]
    return True


def only_user(value: Any) -> Any | None:
    """Return the operation that uses a value once and alone, else None."""
    uses = list(islice(value.uses, 2))
    return uses[0].owner.operation if len(uses) == 1 else None


def is_used(value: Any) -> bool:
    """Return whether any operation reads a value."""
    return next(iter(value.uses), None) is not None


def is_pool(op: Structured) -> bool:
    """Return whether an op reduces windows of its first input; the second only gives their size."""
    first = op.maps[0]
    if len(op.inputs) != 2 or first is None or all(len(axis) < 2 for axis in first):
        return False
    _, window, result = op.body.arguments
    return is_used(result) and not is_used(window)


def copy_of(op: Any) -> Structured | None:
    """Return a linalg op that yields its only input; None for any other op."""
    seen = structured(op)
    if seen is None or len(seen.inputs) != 1:
        return None
    first = next(iter(seen.body.operations)).operation
    is_copy = first.name == "linalg.yield" and first.operands[0] == seen.body.arguments[0]
    return seen if is_copy else None


def splat(value: Any) -> Number | None:
    """Return the number that all elements of a value are, if known."""
    for _ in range(MOST_STEPS):
        op = owner(value)
        if op is None:
            return None
        if op.name == "arith.constant":
            return _number(op.attributes["value"])
        if op.name in ("linalg.fill", "tensor.splat", *VIEWS) or copy_of(op):
            value = op.operands[0]
        else:
            return None
    return None


def _number(attribute: Any) -> Number | None:
    if isinstance(attribute, ir.DenseElementsAttr) and attribute.is_splat:
        attribute = attribute.get_splat_value()
    if isinstance(attribute, ir.FloatAttr | ir.IntegerAttr):
        found = attribute.value
        return found if isinstance(found, float) else int(found)
    return None


def is_constant(value: Any, is_known: Callable[[Any], bool] = lambda _: False) -> bool:
    """Return whether a value is a weight: constants and what `is_known` make it at load time."""
    waiting, seen = [value], set[Any]()
    while waiting and len(seen) < MOST_STEPS:
        value = waiting.pop()
        sources = () if value in seen or is_known(value) else _sources(value)
        if sources is None:
            return False
        if sources:
            seen.add(value)
            waiting += sources
    return not waiting


def _sources(value: Any) -> Sequence[Any] | None:
    """Return the values that a value is computed from, none for a constant; None if unknown.

    Sums of products are unknown, since they are problems of their own.
    """
    op = owner(value)
    if op is None or is_empty(value):
        return None
    if op.name in _CONSTANTS or (op.name in _LOADS and _is_immutable(op)):
        return ()
    if not op.name.startswith(_AHEAD):
        return None
    seen, read = structured(op), list(op.operands)
    if seen is not None and not is_used(seen.body.arguments[-1]):
        read = list(seen.inputs)
    elif seen is not None and len(seen.inputs) > 1:
        return None
    read += (one for inner, own in body_operations(op) for one in inner.operands if one not in own)
    return [one for one in read if not is_empty(one)]


def body_operations(op: Any, outer: Iterable[Any] = ()) -> Iterator[tuple[Any, set[Any]]]:
    """Yield the operations of an op's body, each with the values that the body makes before it."""
    for region in op.regions:
        for block in region.blocks:
            own = {*outer, *block.arguments}
            for view in block.operations:
                yield view.operation, own
                yield from body_operations(view.operation, own)
                own |= set(view.operation.results)


def _is_immutable(load: Any) -> bool:
    name = ir.FlatSymbolRefAttr(load.attributes["global"]).value
    top = load
    while top.parent is not None:
        top = top.parent
    table = ir.SymbolTable(top)
    return name in table and "is_mutable" not in table[name].operation.attributes


Axes = tuple[int, ...]


def origins(value: Any, at: Sequence[Axes]) -> Iterator[tuple[Any, Axes]]:
    """Yield a value and the sources of its broadcasts and reshapes, with the axes of a result.

    `at` are the result's axes for each axis of `value`, none for length 1. The axes of a source are
    those along which its elements vary, in memory order.
    """
    for _ in range(MOST_STEPS):
        yield value, tuple(axis for axes in at for axis in axes)
        op = owner(value)
        before = None if op is None else axes_before(op, at)
        if op is None or before is None:
            return
        value, at = op.operands[0], before


def axes_before(op: Any, at: Sequence[Axes]) -> list[Axes] | None:
    """Return the axes of an op's operand, given those of its result; None if not in order."""
    if op.name == "tensor.cast":
        return list(at)
    if op.name == "tensor.expand_shape":
        return [tuple(axis for i in group for axis in at[i]) for group in reassociation(op)]
    if op.name == "tensor.collapse_shape":
        sizes = tuple(op.operands[0].type.shape)
        found = [Axes()] * len(sizes)
        for i, group in enumerate(reassociation(op)):
            long = [axis for axis in group if sizes[axis] != 1]
            if len(long) > 1:
                return None
            for axis in long:
                found[axis] = at[i]
        return found
    seen = copy_of(op)
    return _before_copy(seen, at) if seen is not None and rank(op.operands[0]) else None


def _before_copy(op: Structured, at: Sequence[Axes]) -> list[Axes] | None:
    """Return the same for a transposition or a broadcast."""
    read, written = op.maps
    if read is None or written is None:
        return None
    found = list[Axes]()
    for axis, size in zip(read, op.inputs[0].type.shape, strict=True):
        if size == 1:
            found.append(())
        elif axis in written and len(axis) == 1 and read.count(axis) == written.count(axis) == 1:
            found.append(at[written.index(axis)])
        else:
            return None
    return found


def long_axes(value: Any) -> list[Axes]:
    """Return each axis of a tensor that is longer than one as its own place."""
    return [(i,) if size != 1 else () for i, size in enumerate(value.type.shape)]


def reassociation(op: Any) -> list[list[int]]:
    """Return the axes of the longer shape for each axis of the shorter one."""
    return [[int(i) for i in group] for group in op.attributes["reassociation"]]


def static_numbers(op: Any, *names: str) -> list[list[int]]:
    """Return the static offsets, sizes, strides or pads of an op, one list for each name."""
    return [[int(getattr(one, "value", one)) for one in op.attributes[f"static_{name}"]]
            for name in names]  # fmt: skip
