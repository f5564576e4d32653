"""Write ops of linalg as text, and put them in the place of an op."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from iree.compiler import ir

from tilewise.kernels.mlir.frontend.child.bodies import inside
from tilewise.kernels.mlir.frontend.child.values import element, is_used, owner


@dataclass(frozen=True)
class Written:
    """A tensor that a written op makes, or an argument of a written function."""

    name: str
    shape: tuple[int, ...]
    kind: str

    @property
    def type(self) -> str:
        """Its type as MLIR writes it."""
        return f"tensor<{'x'.join(map(str, (*self.shape, self.kind)))}>"


def written(values: Sequence[Any]) -> list[Written]:
    """Return values as arguments `%x`, `%w` and `%init` of a function."""
    return [Written(name, tuple(value.type.shape), element(value))
            for name, value in zip(("%x", "%w", "%init"), values, strict=False)]  # fmt: skip


class Writer:
    """The lines of a function, whose values are named in order."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def add(self, text: str, shape: Sequence[int], kind: str, by: str = "->") -> Written:
        """Return the result of an op, whose type follows `by`."""
        made = Written(f"%v{len(self._lines)}", tuple(shape), kind)
        self._lines.append(f"{made.name} = {text} {by} {made.type}")
        return made

    def number(self, value: int, kind: str) -> str:
        """Return a scalar."""
        name = f"%v{len(self._lines)}"
        self._lines.append(f"{name} = arith.constant {value}{'.0' * is_float(kind)} : {kind}")
        return name

    def empty(self, shape: Sequence[int], kind: str) -> Written:
        """Return an uninitialised tensor."""
        return self.add("tensor.empty()", shape, kind, ":")

    def zeros(self, shape: Sequence[int], kind: str) -> Written:
        """Return a tensor of zeros."""
        zero, out = self.number(0, kind), self.empty(shape, kind)
        return self.add(f"linalg.fill ins({zero} : {kind}) outs({out.name} : {out.type})",
                        shape, kind)  # fmt: skip

    def padded(self, value: Written, low: Sequence[int], high: Sequence[int]) -> Written:
        """Return a tensor with zeros around it; negative numbers after it cut it off."""
        shape = [size + min(0, one) for size, one in zip(value.shape, high, strict=True)]
        value = self.sliced(value, [0] * len(shape), shape)
        high = [max(0, one) for one in high]
        if not any((*low, *high)):
            return value
        zero, kind = self.number(0, value.kind), value.kind
        places = ", ".join(f"%i{at}: index" for at in range(len(shape)))
        return self.add(
            f"tensor.pad {value.name} low{list(low)} high{high} {{\n^bb0({places}):\n"
            f"tensor.yield {zero} : {kind}\n}} : {value.type}",
            [sum(one) for one in zip(shape, low, high, strict=True)], kind, "to",
        )  # fmt: skip

    def sliced(
        self,
        value: Written,
        first: Sequence[int],
        sizes: Sequence[int],
        steps: Sequence[int] = (),
        without: int | None = None,
    ) -> Written:
        """Return a part of a tensor, `without` an axis of one element; the whole as it is."""
        if tuple(sizes) == value.shape and without is None:
            return value
        by = list(steps or [1] * len(sizes))
        shape = [size for axis, size in enumerate(sizes) if axis != without]
        return self.add(
            f"tensor.extract_slice {value.name}{list(first)} {list(sizes)} {by} : {value.type}",
            shape, value.kind, "to",
        )  # fmt: skip

    def transposed(self, value: Written, order: Sequence[int]) -> Written:
        """Return a tensor with axis `order[i]` as its axis i."""
        if list(order) == sorted(order):
            return value
        out = self.empty([value.shape[at] for at in order], value.kind)
        self._lines.append(
            f"{out.name}t = linalg.transpose ins({value.name} : {value.type}) "
            f"outs({out.name} : {out.type}) permutation = {list(order)}"
        )
        return Written(f"{out.name}t", out.shape, out.kind)

    def generic(
        self, maps: Sequence[str], inputs: Sequence[Written], out: Written, body: str,
        reduced: Sequence[bool] | None = None,
    ) -> Written:  # fmt: skip
        """Return the result of a `linalg.generic`; `reduced` says which loops sum, none if None."""
        loops = [f'"{"reduction" if one else "parallel"}"'
                 for one in reduced or [False] * len(out.shape)]  # fmt: skip
        names, kinds = (", ".join(getattr(one, of) for one in inputs) for of in ("name", "type"))
        reads = f"ins({names} : {kinds}) " if inputs else ""
        order = ", ".join(f"affine_map<{one}>" for one in maps)
        return self.add(
            f"linalg.generic {{indexing_maps = [{order}], iterator_types = [{', '.join(loops)}]}} "
            f"{reads}outs({out.name} : {out.type}) {{{body}}}", out.shape, out.kind,
        )  # fmt: skip

    def function(self, arguments: Sequence[Written], result: Written) -> str:
        """Return the function as text."""
        given = ", ".join(f"{one.name}: {one.type}" for one in arguments)
        lines = "\n".join(self._lines)
        return (f"func.func @f({given}) -> {result.type} {{\n{lines}\n"
                f"func.return {result.name} : {result.type}\n}}\n")  # fmt: skip


def is_float(kind: str) -> bool:
    """Return whether an element type is one of floats."""
    return kind[0] in "fb"


def identity(rank: int) -> str:
    """Return the map of a tensor that is read at the indices of the loops."""
    names = ", ".join(f"d{i}" for i in range(rank))
    return f"({names}) -> ({names})"


def index(axis: Sequence[tuple[int, int]]) -> str:
    """Return the index at which an axis is read along loops with steps."""
    return " + ".join(f"d{dim} * {step}" for dim, step in axis) or "0"


def region_of(op: Any) -> str:
    """Return the body of an op of linalg as text."""
    text = str(op.get_asm(print_generic_op_form=True, use_local_scope=True))
    return text[text.index("({") + 2 : text.rindex("})")]


def replace(op: Any, function: str, operands: Sequence[Any]) -> None:
    """Replace an op by the ops of a function of `operands`, at its place."""
    _module, block, end = parsed_function(function, op.context)
    known = dict(zip(block.arguments, operands, strict=True))
    for view in list(block.operations)[:-1]:
        copied(view.operation, known, op).location = op.location
    op.results[0].replace_all_uses_with(known[end.operands[0]])
    _erase(op)


def parsed_function(text: str, context: Any) -> tuple[Any, Any, Any]:
    """Return the module of a function (keep it alive), its block, and what ends that."""
    module = ir.Module.parse(text, context)
    block = module.body.operations[0].operation.regions[0].blocks[0]
    return module, block, block.operations[len(block.operations) - 1].operation


def function_text(module: Any) -> str:
    """Return the text of a module's one function, without references to its surroundings."""
    module.operation.verify()
    return f"{module.body.operations[0].operation.get_asm(use_local_scope=True).rstrip()}\n"


def copied(op: Any, known: dict[Any, Any], before: Any) -> Any:
    """Copy an op before another, reading values that are `known` for others; add its results."""
    made = op.clone(ip=ir.InsertionPoint(before))
    for one in (made, *inside(made)):
        for at, value in enumerate(one.operands):
            if value in known:
                one.operands[at] = known[value]
    known |= zip(op.results, made.results, strict=True)
    return made


def _erase(op: Any) -> None:
    """Erase an op that nothing uses, and those that it alone used."""
    makers = [owner(value) for value in op.operands]
    op.erase()
    for maker in dict.fromkeys(one for one in makers if one is not None):
        if not any(map(is_used, maker.results)):
            _erase(maker)
