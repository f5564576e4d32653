"""A graph of ops as text; equal ops are one, as after CSE in the module that is matched."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

PARALLEL = '"parallel"'
ANY = '{"match.operation_name_only"}'


@dataclass(frozen=True)
class Value:
    """A result of an op, or an operand of the whole graph: a tensor, or a scalar.

    A dynamic extent is -1 - i; its name is `%size{i}`. The first are the sizes of a range.
    """

    name: str
    shape: tuple[int, ...]
    element: str
    is_scalar: bool = False

    @property
    def type(self) -> str:
        """Its type in MLIR."""
        return self.element if self.is_scalar else tensor_type(self.shape, self.element)

    @property
    def sized(self) -> str:
        """Its type with the sizes of a range, as dispatches have it: `tensor<?x8xf32>{%size0}`."""
        return f"{self.type}{{{self.sizes}}}" if self.sizes else self.type

    @property
    def sizes(self) -> str:
        """The names of its dynamic extents."""
        return ", ".join(f"%size{-1 - size}" for size in self.shape if size < 0)


@dataclass(frozen=True)
class DispatchOp:
    """One op: `text` is everything after the `=`, `operands` are names of values."""

    name: str
    text: str
    operands: tuple[str, ...]


@dataclass
class DispatchGraph:
    """Ops by the names of their results, each after what it reads."""

    ops: dict[str, DispatchOp] = field(default_factory=dict)
    count: int = 0

    def add(
        self, name: str, rest: str, operands: Sequence[Value], shape: tuple[int, ...], element: str
    ) -> Value:
        """Return the value of an op, which is added unless there is an equal one."""
        op = DispatchOp(name, f"{name} {rest}", tuple(operand.name for operand in operands))
        made = next((at for at, other in self.ops.items() if other == op), None)
        if made is None:
            made = f"%{self.count}"
            self.count += 1
            self.ops[made] = op
        return Value(made, shape, element)

    def text(self) -> str:
        """Return all ops, one after the other."""
        return "\n".join(f"{made} = {op.text}" for made, op in self.ops.items())

    def path(self, root: str, sought: str) -> tuple[int, ...]:
        """Return which operand to follow at each op from `root` to `sought`; raise KeyError."""
        if root == sought:
            return ()
        for at, operand in enumerate(self.ops[root].operands if root in self.ops else ()):
            try:
                return at, *self.path(operand, sought)
            except KeyError:
                continue
        raise KeyError(sought)

    def scalar(self, number: int, element: str) -> Value:
        """Return a tensor of rank 0 that holds a float."""
        kind = tensor_type((), element)
        return self.add("arith.constant", f"dense<{number}.0> : {kind}", (), (), element)

    def empty(self, shape: tuple[int, ...], element: str) -> Value:
        """Return an uninitialised tensor."""
        return self.add(
            "tensor.empty", f"() {ANY} : {tensor_type(shape, element)}", (), shape, element
        )

    def zeros(self, shape: tuple[int, ...], element: str) -> Value:
        """Return a tensor of zeros."""
        literal = "0" if element.startswith("i") else "0.0"
        zero = self.add("arith.constant", f"{literal} : {element}", (), (), element)
        return self._filled(replace(zero, is_scalar=True), self.empty(shape, element))

    def _filled(self, number: Value, out: Value) -> Value:
        rest = f"ins({number.name} : {number.type}) outs({out.name} : {out.type}) -> {out.type}"
        return self.add("linalg.fill", rest, (number, out), out.shape, out.element)

    def generic(
        self,
        maps: Sequence[str],
        inputs: Sequence[Value],
        out: Value,
        body: Sequence[str],
        reductions: int = 0,
    ) -> Value:
        """Return a `linalg.generic` whose block takes `%in0`, `%in1`, ... and `%out`.

        `maps` such as `(d0, d1) -> (d0)` are of the inputs and `out`; the last `reductions` dims
        are reduced.
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
        """Return a tensor with dims joined or split, as `groups` says."""
        if value.name in self.ops and self.ops[value.name].name == "linalg.fill":
            return self._reshaped_zeros(value, groups, shape)
        to = tensor_type(shape, value.element)
        if len(shape) < len(value.shape):
            rest = f"{value.name} {groups} : {value.type} into {to}"
            return self.add("tensor.collapse_shape", rest, (value,), shape, value.element)
        rest = f"{value.name} {groups} output_shape {list(shape)} : {value.type} into {to}"
        return self.add("tensor.expand_shape", rest, (value,), shape, value.element)

    def _reshaped_zeros(self, zeros: Value, groups: str, shape: tuple[int, ...]) -> Value:
        """Fill the wanted shape instead, as canonicalisation does."""
        filled = self.ops[zeros.name]
        empty = Value(filled.operands[1], zeros.shape, zeros.element)
        zero = Value(filled.operands[0], (), zeros.element, is_scalar=True)
        return self._filled(zero, self.reshaped(empty, groups, shape))


def tensor_type(shape: tuple[int, ...], element: str) -> str:
    """Return MLIR's type of a tensor; an extent below 0 is dynamic."""
    return f"tensor<{''.join('?x' if size < 0 else f'{size}x' for size in shape)}{element}>"


def map_of(rank: int, results: str) -> str:
    """Return the map from dims `d0`, ... to results."""
    return f"({', '.join(f'd{i}' for i in range(rank))}) -> ({results})"


def identity_map(rank: int) -> str:
    """Return the identity map."""
    return map_of(rank, ", ".join(f"d{i}" for i in range(rank)))


@dataclass(frozen=True)
class Inner:
    """An op of a body with the constants that it reads, as a function of `arguments` with types.

    IREE's matcher compares a body only if each value that it reads from outside is an operand of
    some op of the pattern. A library therefore replaces the op by a call, and inlines that.
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
