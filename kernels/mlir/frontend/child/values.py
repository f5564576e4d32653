"""Linalg ops in one form, and where values come from: constants, single uses, repetitions."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

from iree.compiler import ir
from iree.compiler.dialects import linalg

from tilewise.kernels.mlir.frontend.graph import ARGUMENT, SAME_BYTES
from tilewise.kernels.mlir.frontend.nest import Axis, Operand, RefusedError, dims_of

_MAP = re.compile(r"\(([^)]*)\) -> \((.*)\)")
_TERM = re.compile(r"d(\d+)(?: \* (\d+))?")


@dataclass(frozen=True)
class Structured:
    """A linalg op with one result.

    Attributes:
        inputs: its values that are only read.
        init: what the result starts from.
        maps: the axes of each input and of the result; None where they are no sums of dims.
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
        """The block with what is done for each element."""
        return self.op.regions[0].blocks[0]

    def operand(self, number: int) -> Operand:
        """How an operand is accessed; the result is the last one.

        Raises:
            RefusedError: not at sums of dims, or its shape is not static.
        """
        axes = self.maps[number]
        value = self.inputs[number] if number < len(self.inputs) else self.init
        if axes is None:
            raise RefusedError(self._other_index(number))
        return Operand(axes, static_shape(value))

    def _other_index(self, number: int) -> str:
        """Why an operand is none of a problem's: an index with a constant or a division."""
        found = _MAP.fullmatch(str(linalg.get_indexing_maps(self.op)[number].value))
        at = [one for one in found[2].split(", ") if _axis(one) is None] if found else ["?"]
        what = "writes its result" if number == len(self.inputs) else f"reads input {number + 1}"
        return f"{what} at {', '.join(at)}; known are sums of loop indices times constants"

    @property
    def is_parallel(self) -> bool:
        """Whether no loop reduces: the result has an axis for each dim of the inputs."""
        written = dims_of(self.maps[-1] or ())
        return all(axes is not None and dims_of(axes) <= written for axes in self.maps)

    def is_identity(self, number: int) -> bool:
        """Whether an operand is read as the result is written, axis by axis."""
        axes = self.maps[number]
        return axes is not None and axes == self.maps[-1] and _is_permutation(axes)

    def is_identity_of_loops(self, number: int) -> bool:
        """Whether each axis of an operand is read along one loop of its own, with step 1."""
        axes = self.maps[number]
        return axes is not None and _is_permutation(axes)


def structured(op: Any) -> Structured | None:
    """An operation as a linalg op with one result; None if it is none."""
    if not op.name.startswith("linalg.") or len(op.results) != 1 or not len(op.regions):
        return None
    maps = maps_of(op)
    if maps is None:
        return None
    values = tuple(op.operands)
    return Structured(op, values[:-1], values[-1], maps)


def maps_of(op: Any) -> tuple[tuple[Axis, ...] | None, ...] | None:
    """The axes that a linalg op reads and writes, one for each operand; None if it has no maps."""
    try:
        maps = linalg.get_indexing_maps(op)
    except (TypeError, ValueError):
        return None
    if not maps or len(maps) != len(op.operands):
        return None
    return tuple(_axes(str(one.value)) for one in maps)


def static_shape(value: Any) -> tuple[int, ...]:
    """The shape of a tensor; of a scalar none.

    Raises:
        RefusedError: it is not static, without elements, laid out by an encoding, or of a buffer.
    """
    kind = value.type
    if isinstance(kind, ir.RankedTensorType):
        if not kind.has_static_shape:
            raise RefusedError("has dynamic shapes; give the model static ones")
        if 0 in kind.shape:
            raise RefusedError("has an axis without elements")
        if kind.encoding is not None:
            raise RefusedError("has a tensor with an encoding; give the model with plain tensors")
        return tuple(kind.shape)
    if isinstance(kind, ir.ShapedType):
        raise RefusedError("works on buffers; give the model before bufferization, on tensors")
    return ()


def rank(value: Any) -> int:
    """Axes of a tensor; 0 for anything else."""
    kind = value.type
    return int(kind.rank) if isinstance(kind, ir.RankedTensorType) else 0


def element(value: Any) -> str:
    """The element type of a tensor as MLIR writes it."""
    kind = value.type
    return str(kind.element_type if isinstance(kind, ir.ShapedType) else kind)


def extents(operands: Sequence[Operand]) -> tuple[int, ...]:
    """The lengths of the loops, as the axes tell that are read at one dim alone."""
    found: dict[int, int] = {}
    most = -1
    for operand in operands:
        for axis, size in zip(operand.axes, operand.shape, strict=True):
            most = max(most, *(dim for dim, _ in axis), -1)
            if len(axis) == 1 and axis[0][1] == 1:
                found.setdefault(axis[0][0], size)
    if any(dim not in found for dim in range(most + 1)):
        raise RefusedError("has a loop whose length no operand tells")
    return tuple(found[dim] for dim in range(most + 1))


@lru_cache(maxsize=4096)
def _axes(text: str) -> tuple[Axis, ...] | None:
    """The axes of a map as it is printed; None if one is no sum of dims."""
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


def _is_permutation(axes: Sequence[Axis]) -> bool:
    dims = [axis[0][0] for axis in axes if len(axis) == 1 and axis[0][1] == 1]
    return len(dims) == len(axes) == len(set(dims))


def permutation(op: Structured) -> tuple[int, ...] | None:
    """For each axis of the result the axis of the input, if the op may be a transposition."""
    if len(op.inputs) != 1:
        return None
    read, written = op.maps
    if read is None or written is None or len(read) != len(written):
        return None
    if not (_is_permutation(read) and _is_permutation(written)):
        return None
    return tuple(read.index(axis) for axis in written)


MOST_STEPS = 64
RESHAPES = ("tensor.expand_shape", "tensor.collapse_shape")
_CONSTANTS = ("arith.constant", "flow.tensor.constant", "util.unfoldable_constant",
              "ml_program.global_load_const", "torch.vtensor.literal", "tosa.const",
              "stablehlo.constant")  # fmt: skip
_LOADS = ("util.global.load",)
_DEQUANTIZED = "iree_linalg_ext.dequantize_affine"
"""Of a tensor, its scale and its zero point; other lowerings have a linalg op in its place."""
Number = int | float


def owner(value: Any) -> Any | None:
    """The operation that makes a value; None for an argument."""
    found = value.owner
    return (
        None if isinstance(found, ir.Block) else found.operation
    )  # some views have another `name`


def is_argument(value: Any) -> bool:
    """Whether a value is an argument of the program, in whatever shape; its bytes are not ours."""
    for _ in range(MOST_STEPS):
        op = owner(value)
        if op is None or op.name == ARGUMENT:
            return True
        if op.name not in SAME_BYTES:
            return False
        value = op.operands[0]
    return True


def only_user(value: Any) -> Any | None:
    """The one operation that uses a value, once; None if there are none or more uses."""
    uses = list(islice(value.uses, 2))
    return uses[0].owner.operation if len(uses) == 1 else None


def is_copy(op: Any) -> bool:
    """Whether a linalg op yields its only input, element by element."""
    seen = structured(op)
    if seen is None or len(seen.inputs) != 1:
        return False
    block = seen.body
    last = next(iter(block.operations)).operation
    return bool(last.name == "linalg.yield" and last.operands[0] == block.arguments[0])


def splat(value: Any) -> Number | None:
    """The number that all elements of a value are, if that is known."""
    for _ in range(MOST_STEPS):
        op = owner(value)
        if op is None:
            return None
        if op.name == "arith.constant":
            return _number(op.attributes["value"])
        if op.name in ("linalg.fill", "tensor.splat", *SAME_BYTES) or is_copy(op):
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


def is_constant(value: Any) -> bool:
    """Whether a value is known when the module is compiled or loaded: a weight."""
    for _ in range(MOST_STEPS):
        op = owner(value)
        if op is None:
            return False
        if op.name in _CONSTANTS:
            return True
        if op.name in _LOADS:
            return _is_immutable(op)
        if op.name in ("linalg.fill", "tensor.splat", "tensor.pad", *SAME_BYTES) or _is_of_one(op):
            value = op.operands[0]
        else:
            return False
    return False


def _is_of_one(op: Any) -> bool:
    """Whether an op computes from one tensor alone: a transposition, a cast, a scale for all."""
    if op.name == _DEQUANTIZED:
        return all(not rank(one) and is_constant(one) for one in list(op.operands)[1:-1])
    seen = structured(op)
    return seen is not None and len(seen.inputs) == 1 and not list(islice(
        seen.body.arguments[-1].uses, 1))  # fmt: skip


def _is_immutable(load: Any) -> bool:
    name = ir.FlatSymbolRefAttr(load.attributes["global"]).value
    top = load
    while top.parent is not None:
        top = top.parent
    table = ir.SymbolTable(top)
    return name in table and "is_mutable" not in table[name].operation.attributes


Axes = tuple[int, ...]


def origins(value: Any, at: Sequence[Axes]) -> Iterator[tuple[Any, Axes]]:
    """A value and all that it repeats or has in another shape, each with where its elements lie.

    Args:
        value: a tensor.
        at: for each of its axes those of a result along which it lies; none for one of length 1.

    Yields:
        What the value is made of, and the axes of the result along which its elements lie, in
        the order in which they lie in memory.
    """
    for _ in range(MOST_STEPS):
        yield value, tuple(axis for axes in at for axis in axes)
        op = owner(value)
        before = None if op is None else _before(op, at)
        if op is None or before is None:
            return
        value, at = op.operands[0], before


def _before(op: Any, at: Sequence[Axes]) -> list[Axes] | None:
    """Where the axes of an op's operand lie, given those of its result; None if in no order."""
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
    return _before_copy(op, at) if is_copy(op) and rank(op.operands[0]) else None


def _before_copy(op: Any, at: Sequence[Axes]) -> list[Axes] | None:
    """The same of a transposition or a repetition."""
    seen = structured(op)
    assert seen is not None
    read, written = seen.maps
    if read is None or written is None:
        return None
    sizes, found = tuple(op.operands[0].type.shape), list[Axes]()
    for axis, size in zip(read, sizes, strict=True):
        if size == 1:
            found.append(())
        elif axis in written and len(axis) == 1 and read.count(axis) == written.count(axis) == 1:
            found.append(at[written.index(axis)])
        else:
            return None
    return found


def long_axes(value: Any) -> list[Axes]:
    """Each axis of a tensor as its own place, where it is longer than one."""
    return [(i,) if size != 1 else () for i, size in enumerate(value.type.shape)]


def reassociation(op: Any) -> list[list[int]]:
    """Which axes of the longer shape are one axis of the shorter one."""
    return [[int(i) for i in group] for group in op.attributes["reassociation"]]


def integers(attribute: Any) -> list[int]:
    """The numbers of an array attribute."""
    return [int(getattr(one, "value", one)) for one in attribute]
