"""Linalg ops seen alike, named or generic: operands, the axes that they read, and the body."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from iree.compiler import ir
from iree.compiler.dialects import linalg

from tilewise.kernels.mlir.frontend.nest import Axis, Operand, RefusedError

_MAP = re.compile(r"\(([^)]*)\) -> \((.*)\)")
_TERM = re.compile(r"d(\d+)(?: \* (\d+))?")


@dataclass(frozen=True)
class Structured:
    """A linalg op with one result.

    Attributes:
        op: the operation.
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
