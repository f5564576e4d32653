"""Write ops of torch in front of an op."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from iree.compiler import ir

from tilewise.kernels.mlir.frontend.child.values import owner

_TENSOR = re.compile(r"!torch\.vtensor<\[([\d,?]*)\],([\w]+)>")
FLOATS = {"f32": 6, "f16": 5, "bf16": 15}
"""Element types by torch's numbers."""


class RefusedError(Exception):
    """The op cannot be taken apart; the message says why."""


@dataclass
class TorchWriter:
    """Writes ops of torch before an op, at its place."""

    op: Any
    numbers: dict[int, Any] = field(default_factory=dict)

    def op_of(self, name: str, operands: Sequence[Any], kind: str, **attributes: Any) -> Any:
        """Return the result of a new op of any dialect."""
        made = ir.Operation.create(
            name, [ir.Type.parse(kind, self.op.context)], list(operands), attributes,
            loc=self.op.location, ip=ir.InsertionPoint(self.op),
        )  # fmt: skip
        return made.result

    def make(self, name: str, operands: Sequence[Any], kind: str, **attributes: Any) -> Any:
        """Return the result of a new op of torch."""
        return self.op_of(f"torch.{name}", operands, kind, **attributes)

    def tensor(self, name: str, operands: Sequence[Any], shape: Sequence[int], dtype: str) -> Any:
        """Return a tensor that a new op makes."""
        return self.make(name, operands, tensor_type(shape, dtype))

    def whole(self, value: int) -> Any:
        """Return a number."""
        if value not in self.numbers:
            kind = ir.IntegerType.get_signless(64, self.op.context)
            self.numbers[value] = self.make(
                "constant.int", (), "!torch.int", value=ir.IntegerAttr.get(kind, value)
            )
        return self.numbers[value]

    def real(self, value: float) -> Any:
        """Return a number."""
        kind = ir.F64Type.get(self.op.context)
        attribute = ir.FloatAttr.get(kind, value, loc=self.op.location)
        return self.make("constant.float", (), "!torch.float", value=attribute)

    def truth(self, value: bool) -> Any:
        """Return a truth value."""
        kind = ir.IntegerType.get_signless(1, self.op.context)
        return self.make("constant.bool", (), "!torch.bool", value=ir.IntegerAttr.get(kind, value))

    def none(self) -> Any:
        """Return torch's None."""
        return self.make("constant.none", (), "!torch.none")

    def wholes(self, values: Sequence[Any]) -> Any:
        """Return a list of numbers."""
        numbers = [self.whole(one) for one in values]
        return self.make("prim.ListConstruct", numbers, "!torch.list<int>")

    def literal(self, values: Any) -> Any:
        """Return a constant tensor of f32."""
        attribute = ir.DenseElementsAttr.get(values, context=self.op.context)
        return self.make("vtensor.literal", (), tensor_type(values.shape, "f32"), value=attribute)

    def reshaped(self, value: Any, shape: Sequence[int]) -> Any:
        """Return a tensor in another shape."""
        return self.tensor(
            "aten.view", [value, self.wholes(shape)], shape, tensor_type_of(value)[1]
        )

    def transposed(self, value: Any, first: int, second: int) -> Any:
        """Return a tensor with two axes exchanged."""
        shape, dtype = tensor_type_of(value)
        axes = list(shape)
        axes[first], axes[second] = axes[second], axes[first]
        operands = [value, self.whole(first), self.whole(second)]
        return self.tensor("aten.transpose.int", operands, axes, dtype)

    def converted(self, value: Any, dtype: str) -> Any:
        """Return a tensor in another element type."""
        shape, known = tensor_type_of(value)
        if known == dtype:
            return value
        operands = [value, self.whole(FLOATS[dtype]), self.truth(False), self.truth(False),
                    self.none()]  # fmt: skip
        return self.tensor("aten.to.dtype", operands, shape, dtype)


def tensor_type(shape: Sequence[int], dtype: str) -> str:
    """Return the type of a tensor of torch."""
    return f"!torch.vtensor<[{','.join(map(str, shape))}],{dtype}>"


def tensor_type_of(value: Any) -> tuple[tuple[int, ...], str]:
    """Return the shape and the element type of a tensor of torch."""
    found = _TENSOR.fullmatch(str(value.type))
    if found is None or "?" in found[1]:
        raise RefusedError("has dynamic shapes; give --dim NAME=SIZE")
    return tuple(int(size) for size in found[1].split(",") if size), found[2]


def constant(value: Any, name: str) -> Any:
    """Return the value of a constant, None for torch's None; raise RefusedError for any other."""
    maker = owner(value)
    if maker is None or not maker.name.startswith("torch.constant."):
        raise RefusedError(f"computes its {name}; give it as a constant")
    return None if maker.name == "torch.constant.none" else maker.attributes["value"].value
