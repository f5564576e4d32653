"""A graph of ops as it is written down: values, and what makes them.

Equal ops are one, as they are after CSE in the module that is looked at.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

PARALLEL = '"parallel"'
ANY = '{"match.operation_name_only"}'


@dataclass(frozen=True)
class Value:
    """What an op makes, or an operand of the whole graph.

    Attributes:
        name: such as `%3`.
        shape: of a tensor; None of a scalar.
        element: MLIR's name of the element's type.
    """

    name: str
    shape: tuple[int, ...] | None
    element: str

    @property
    def type(self) -> str:
        """Its type in MLIR."""
        return self.element if self.shape is None else tensor_type(self.shape, self.element)


@dataclass(frozen=True)
class Op:
    """One op.

    Attributes:
        name: such as `linalg.matmul`.
        text: all of it behind the `=`.
        operands: the names of the values that it reads, in their order.
    """

    name: str
    text: str
    operands: tuple[str, ...]


@dataclass
class Graph:
    """Ops by the names of what they make, each after what it reads."""

    ops: dict[str, Op] = field(default_factory=dict)
    count: int = 0

    def add(
        self,
        name: str,
        rest: str,
        operands: Sequence[Value],
        shape: tuple[int, ...] | None,
        element: str,
    ) -> Value:
        """The value of an op, which is added if there is none like it."""
        op = Op(name, f"{name} {rest}", tuple(operand.name for operand in operands))
        made = next((at for at, other in self.ops.items() if other == op), None)
        if made is None:
            made = f"%{self.count}"
            self.count += 1
            self.ops[made] = op
        return Value(made, shape, element)

    def text(self) -> str:
        """All of it, an op after the other."""
        return "\n".join(f"{made} = {op.text}" for made, op in self.ops.items())

    def path(self, root: str, sought: str) -> tuple[int, ...]:
        """From a value to one that it depends on: which operand to follow at each op.

        Raises:
            KeyError: it does not depend on it.
        """
        if root == sought:
            return ()
        for at, operand in enumerate(self.ops[root].operands if root in self.ops else ()):
            try:
                return at, *self.path(operand, sought)
            except KeyError:
                continue
        raise KeyError(sought)

    def zero(self, element: str) -> Value:
        """The scalar 0."""
        literal = "0" if element.startswith("i") else "0.0"
        return self.add("arith.constant", f"{literal} : {element}", (), None, element)

    def scalar(self, number: int, element: str) -> Value:
        """A tensor of no dimensions that holds a number, as a float."""
        kind = tensor_type((), element)
        return self.add("arith.constant", f"dense<{number}.0> : {kind}", (), (), element)

    def empty(self, shape: tuple[int, ...], element: str) -> Value:
        """A tensor of nothing in particular."""
        return self.add(
            "tensor.empty", f"() {ANY} : {tensor_type(shape, element)}", (), shape, element
        )

    def zeros(self, shape: tuple[int, ...], element: str) -> Value:
        """A tensor of zeros."""
        zero, empty = self.zero(element), self.empty(shape, element)
        rest = f"ins({zero.name} : {zero.type}) outs({empty.name} : {empty.type}) -> {empty.type}"
        return self.add("linalg.fill", rest, (zero, empty), shape, element)

    def generic(
        self,
        maps: Sequence[str],
        inputs: Sequence[Value],
        out: Value,
        body: Sequence[str],
        reductions: int = 0,
    ) -> Value:
        """A `linalg.generic`; its block's arguments are `%in0`, `%in1`, ... and `%out`.

        Args:
            maps: as `(d0, d1) -> (d0)`, of the inputs and of `out`.
            inputs: what it reads.
            out: what it starts from.
            body: its lines; the last one yields.
            reductions: how many of the last dims are reduced.
        """
        rank = maps[0].partition("->")[0].count(",") + 1
        kinds = [PARALLEL] * (rank - reductions) + ['"reduction"'] * reductions
        arguments = [f"%in{i}: {value.element}" for i, value in enumerate(inputs)]
        names, types = (", ".join(v) for v in zip(*((i.name, i.type) for i in inputs), strict=True))
        head = (
            f"{{indexing_maps = [{', '.join(f'affine_map<{one}>' for one in maps)}], "
            f"iterator_types = [{', '.join(kinds)}]}} "
            f"ins({names} : {types}) outs({out.name} : {out.type}) {{"
        )
        block = f"^bb0({', '.join([*arguments, f'%out: {out.element}'])}):"
        rest = "\n".join([head, block, *(f"  {line}" for line in body), f"}} -> {out.type}"])
        return self.add("linalg.generic", rest, (*inputs, out), out.shape, out.element)

    def reshaped(self, value: Value, groups: str, shape: tuple[int, ...]) -> Value:
        """A tensor with dims joined or split, as `groups` says."""
        assert value.shape is not None
        if value.name in self.ops and self.ops[value.name].name == "linalg.fill":
            return self._reshaped_zeros(value, groups, shape)
        to = tensor_type(shape, value.element)
        if len(shape) < len(value.shape):
            rest = f"{value.name} {groups} : {value.type} into {to}"
            return self.add("tensor.collapse_shape", rest, (value,), shape, value.element)
        rest = f"{value.name} {groups} output_shape {list(shape)} : {value.type} into {to}"
        return self.add("tensor.expand_shape", rest, (value,), shape, value.element)

    def _reshaped_zeros(self, zeros: Value, groups: str, shape: tuple[int, ...]) -> Value:
        """Zeros are written into the shape that is wanted, where canonicalisation moves them."""
        filled = self.ops[zeros.name]
        empty = Value(filled.operands[1], zeros.shape, zeros.element)
        zero = Value(filled.operands[0], None, zeros.element)
        wide = self.reshaped(empty, groups, shape)
        rest = f"ins({zero.name} : {zero.type}) outs({wide.name} : {wide.type}) -> {wide.type}"
        return self.add("linalg.fill", rest, (zero, wide), shape, zeros.element)


def tensor_type(shape: tuple[int, ...], element: str) -> str:
    """MLIR's type of a tensor."""
    return f"tensor<{''.join(f'{size}x' for size in shape)}{element}>"


def dims(rank: int) -> list[str]:
    """Names of a map's dims."""
    return [f"d{i}" for i in range(rank)]


def identity_map(rank: int) -> str:
    """The map of a value that is read as it lies."""
    names = ", ".join(dims(rank))
    return f"({names}) -> ({names})"


@dataclass(frozen=True)
class Inner:
    """An op of a body with the constants that it reads from outside, moved into the body.

    IREE's matcher compares a body only if all that it reads from outside is an operand of some op
    of the pattern. So a library puts a call of a function in the op's place, and inlines that.

    Attributes:
        arguments: its types, by names.
        text: the constants, then the op.
    """

    name: str
    arguments: dict[str, str]
    text: str
    result: str
    type: str

    @property
    def signature(self) -> str:
        """The function's arguments with their types."""
        return ", ".join(f"{name}: {kind}" for name, kind in self.arguments.items())
