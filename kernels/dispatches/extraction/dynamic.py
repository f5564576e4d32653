"""Dynamic tensors with the static types that they have at a size, so that recognition reads them.

All dynamic dims of arguments have one size, since others were given exact ones.
"""

import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

from iree.compiler import ir

from tilewise.kernels.mlir.frontend.child.operations import operations
from tilewise.kernels.mlir.frontend.child.values import owner, reassociation
from tilewise.kernels.mlir.frontend.dims import DimRange

_SAME = ("util.assume.int", "arith.index_cast", "arith.index_castui", "arith.extsi", "arith.extui",
         "arith.trunci")  # fmt: skip
_BINARY: dict[str, Callable[[int, int], int]] = {
    "addi": operator.add, "subi": operator.sub, "muli": operator.mul,
    "maxsi": max, "maxui": max, "minsi": min, "minui": min,
    "divsi": operator.floordiv, "divui": operator.floordiv, "floordivsi": operator.floordiv,
    "remsi": operator.mod, "remui": operator.mod,
}  # fmt: skip
"""Of sizes, which are not negative."""
_SIZED = ("tensor.empty", "tensor.expand_shape", "hal.tensor.import", "flow.tensor.tie_shape")
"""Ops whose operands of type `index` are the dynamic sizes of their result."""
_SAME_SHAPE = ("tensor.cast", "hal.tensor.barrier")
Sizes = tuple[int, ...]
"""A value or an extent at each sample."""


class UnknownSizeError(Exception):
    """A size depends on something else than the dims of arguments."""


class DynamicTensors:
    """The dynamic tensors of a module, and their types at the samples of a dim.

    Without a dim the module is static.
    """

    def __init__(self, module: Any, dim: DimRange | None) -> None:
        self.dim, self._samples = dim, dim.samples if dim else ()
        self._numbers: dict[Any, Sizes] = {}
        self._shapes: dict[Any, tuple[Sizes, ...]] = {}
        self._types: dict[Any, Any] = {}
        for op, _, _ in operations(module.operation) if dim else ():
            for value in op.results:
                self._look(value)

    def _look(self, value: Any) -> None:
        """Keep the shape of a value if it is a dynamic tensor of known sizes."""
        kind = value.type
        if isinstance(kind, ir.RankedTensorType) and not kind.has_static_shape:
            try:
                self._shapes[value] = self._shape_of(value)
            except UnknownSizeError:
                return
            self._types[value] = kind

    def set_sample(self, sample: int) -> None:
        """Give all tensors their types at a sample."""
        for value, kind in self._types.items():
            shape = [extent[sample] for extent in self._shapes[value]]
            value.set_type(ir.RankedTensorType.get(shape, kind.element_type, kind.encoding))

    @contextmanager
    def as_declared(self) -> Iterator[None]:
        """Give all tensors their dynamic types, and then those of the last sample again."""
        for value, kind in self._types.items():
            value.set_type(kind)
        try:
            yield
        finally:
            self.set_sample(-1)

    def extents(self, value: Any) -> tuple[int | Sizes, ...]:
        """Return the extents of a tensor, and those at each sample of the dynamic ones."""
        kind = self._types.get(value, value.type)
        return tuple(
            self._shapes[value][axis] if kind.is_dynamic_dim(axis) else kind.get_dim_size(axis)
            for axis in range(kind.rank)
        )

    def number(self, value: Any) -> Sizes:
        """Return an integer at each sample; raise UnknownSizeError if it is no size."""
        if value not in self._numbers:
            self._numbers[value] = self._number_of(value)
        return self._numbers[value]

    def _number_of(self, value: Any) -> Sizes:
        op = owner(value)
        if op is None or not self._samples:
            raise UnknownSizeError
        if op.name == "hal.buffer_view.dim" and owner(op.operands[0]) is None:
            return self._samples
        if op.name == "arith.constant" and isinstance(op.attributes["value"], ir.IntegerAttr):
            return (op.attributes["value"].value,) * len(self._samples)
        if op.name in _SAME:
            return self.number(op.operands[list(op.results).index(value)])
        if op.name == "tensor.dim":
            return self.shape(op.operands[0])[self.number(op.operands[1])[0]]
        made = _BINARY.get(op.name.removeprefix("arith."))
        if made is None:
            raise UnknownSizeError
        try:
            return tuple(map(made, *map(self.number, op.operands)))
        except ZeroDivisionError as error:
            raise UnknownSizeError from error

    def shape(self, value: Any) -> tuple[Sizes, ...]:
        """Return the extents of a tensor at each sample; raise UnknownSizeError."""
        if value in self._shapes:
            return self._shapes[value]
        if not value.type.has_static_shape:
            raise UnknownSizeError
        return tuple((extent,) * len(self._samples) for extent in value.type.shape)

    def _shape_of(self, value: Any) -> tuple[Sizes, ...]:
        op, kind = owner(value), value.type
        if op is None:
            raise UnknownSizeError
        if op.name in _SIZED:
            given = iter([one for one in op.operands if isinstance(one.type, ir.IndexType)])
            return tuple(
                self.number(next(given)) if kind.is_dynamic_dim(axis)
                else (kind.get_dim_size(axis),) * len(self._samples)
                for axis in range(kind.rank)
            )  # fmt: skip
        if op.name == "tensor.collapse_shape":
            source = self.shape(op.operands[0])
            return tuple(
                tuple(map(prod, zip(*(source[axis] for axis in group), strict=True)))
                for group in reassociation(op)
            )
        if op.name.startswith("linalg."):  # its last operands are the tensors that it writes
            results = list(op.results)
            return self.shape(op.operands[len(op.operands) - len(results) + results.index(value)])
        if op.name == "tensor.insert_slice":
            return self.shape(op.operands[1])
        if op.name in _SAME_SHAPE:
            return self.shape(op.operands[list(op.results).index(value)])
        raise UnknownSizeError
