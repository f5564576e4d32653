"""The nodes of a module in order, each with the tensors that it reads and makes.

A value and its views are one tensor. A contraction is a node with everything that it includes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from iree.compiler import ir

from tilewise.kernels.mlir.frontend.child.candidates import candidates, is_quantised
from tilewise.kernels.mlir.frontend.child.fusion import Ending
from tilewise.kernels.mlir.frontend.child.operations import FUNCTIONS, operations, where
from tilewise.kernels.mlir.frontend.child.values import (
    MOST_STEPS,
    Number,
    Structured,
    copy_of,
    element,
    is_constant,
    is_empty,
    is_pool,
    only_user,
    owner,
    rank,
    structured,
)
from tilewise.kernels.mlir.frontend.graph import (
    ARGUMENT,
    VIEWS,
    Graph,
    Node,
    NodeKind,
    Occurrence,
    Size,
    Tensor,
    TensorUse,
)


class Tensors:
    """The tensors seen so far, in order."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._made: list[Any] = []
        self._known: set[Any] = set()
        self._made_here: set[int] = set()
        self._results: set[int] = set()

    def is_known(self, value: Any) -> bool:
        """Return whether a value is known at load time, or is an uninitialised tensor."""
        root = root_of(value)
        if root not in self._known and is_constant(root, self._known.__contains__):
            self._known.add(root)
        return root in self._known or is_empty(root)

    def is_activation(self, value: Any) -> bool:
        """Return whether a value is a tensor between nodes."""
        return bool(rank(value)) and not self.is_known(value)

    def read(self, value: Any, role: str) -> TensorUse:
        """Return a use of a value, which becomes a tensor."""
        return TensorUse(self._number(root_of(value)), shape_of(value), role)

    def make(self, value: Any, shape: tuple[Size, ...], role: str) -> TensorUse:
        """Return the use that makes a value, in its maker's shape."""
        number = self._number(value)
        self._made_here.add(number)
        return TensorUse(number, shape, role)

    def leave(self, value: Any) -> None:
        """Record that a function returns a value."""
        if self.is_activation(value):
            self._results.add(self._number(root_of(value)))

    def number_of(self, value: Any) -> int | None:
        """Return the number of the tensor that a value views; None if no node has it."""
        return self._numbers.get(root_of(value))

    def all(self) -> tuple[Tensor, ...]:
        """Return the tensors by number."""
        return tuple(
            Tensor(shape_of(value), element(value), i not in self._made_here, i in self._results)
            for i, value in enumerate(self._made)
        )

    def _number(self, value: Any) -> int:
        if value not in self._numbers:
            self._numbers[value] = len(self._made)
            self._made.append(value)
        return self._numbers[value]


def root_of(value: Any) -> Any:
    """Return what a value is a view of."""
    for _ in range(MOST_STEPS):
        op = owner(value)
        if op is None or op.name not in VIEWS:
            break
        value = op.operands[0]
    return value


def shape_of(value: Any) -> tuple[Size, ...]:
    """Return the shape of a tensor."""
    kind = value.type
    if not isinstance(kind, ir.RankedTensorType):
        return ()
    return tuple(None if kind.is_dynamic_dim(i) else kind.get_dim_size(i) for i in range(kind.rank))


OF_A_PLACE = ("linalg.index", "tensor.extract")
"""Ops of bodies whose result depends on the position, besides the elements."""


def kind_of(op: Any) -> NodeKind:
    """Return an op's kind; elementwise if each element depends on those at one position."""
    seen = structured(op)
    if seen is None:
        is_math = op.name.startswith(("arith.", "math.")) and len(op.results) == 1
        return "elementwise" if is_math and rank(op.results[0]) else "other"
    if is_pool(seen):
        return "pool"
    is_in_order = seen.is_parallel and seen.is_identity(len(seen.inputs))
    reads_place = any(view.operation.name in OF_A_PLACE for view in seen.body.operations)
    reads_tensors = any(map(rank, seen.inputs))
    return "elementwise" if is_in_order and reads_tensors and not reads_place else "other"


def reads_in_place(op: Any, number: int) -> bool:
    """Return whether an elementwise op reads an operand at the position that it writes."""
    seen = structured(op)
    if seen is None:
        return bool(op.operands[number].type.shape == op.results[0].type.shape)
    return seen.is_identity(number)


_PADS = ("tensor.pad", "tensor.insert_slice")
BIAS = "bias"


@dataclass(frozen=True)
class Surroundings:
    """A contraction among the ops of its module.

    Attributes:
        reads: operands before everything that is included, by role: A and B, C if the sums start
            from a tensor, a residual `add`, bias.
        result: the value after everything that is included, before its views.
        shape: of the sums, in the axis order of the final result.
        inside: intermediate values, which nothing else reads.
        number: the bias if it is a number.
    """

    op: Structured
    found: Occurrence
    reads: tuple[tuple[str, Any], ...]
    result: Any
    shape: tuple[Size, ...]
    inside: frozenset[Any]
    number: Number | None


def surroundings(op: Structured, found: Occurrence, ending: Ending) -> Surroundings:
    """Follow what `recognised` has included, backwards and forwards."""
    inside: set[Any] = set()
    reads = [
        (role, _source(op.inputs[number], _taken(found, role), inside))
        for role, number in zip("AB", found.inputs, strict=True)
    ]
    accumulates = "init=accumulate" in found.problem
    if ending.added is not None:
        reads.append(("C" if accumulates else "add", ending.added))
    elif accumulates:
        reads.append(("C", op.init))
    if ending.bias is not None:
        reads.append((BIAS, ending.bias))
    after, result = forward(op.result, ending.value), root_of(ending.value)
    chain = (*after, ending.value)
    *_, sums = takewhile(lambda one: one.owner.operation.name not in VIEWS, chain)
    inside = inside.union(ending.repeated, after) - {result}
    number = ending.number if ending.has_bias and ending.bias is None else None
    return Surroundings(op, found, tuple(reads), result, shape_of(sums), frozenset(inside), number)


def _taken(found: Occurrence, role: str) -> set[str]:
    """Return what is included before an operand."""
    names = {f"transpose_{role.lower()}", f"broadcast_{role.lower()}"}
    return {name for name in found.fused if name in names or (name == "pad" and role == "A")}


def _source(value: Any, taken: set[str], inside: set[Any]) -> Any:
    """Return an operand before everything in `taken`; add intermediate values to `inside`."""
    for _ in range(MOST_STEPS):
        op = owner(value)
        if not taken or op is None or (only_user(value) is None and not is_constant(value)):
            break
        if op.name in _PADS and "pad" in taken:
            taken = taken - {"pad"}
        elif copy_of(op):
            taken = taken & {"pad"}
        elif op.name not in VIEWS:
            break
        inside.add(value)
        value = op.operands[0]
    return value


def forward(value: Any, last: Any) -> list[Any]:
    """Return the values from an op's result up to `last`, exclusive."""
    found = [value] if value != last else []
    for one in found:
        made = [use.owner.operation.results[0] for use in one.uses]
        found += [one for one in dict.fromkeys(made) if one != last and one not in found]
    return found


_LEAVES = ("func.return", "util.return")
_SKIPPED = (*FUNCTIONS, *VIEWS, ARGUMENT)


@dataclass(frozen=True)
class Traced:
    """A graph with what it was read from.

    Attributes:
        sources: the op of each node, or a contraction's surroundings.
        left: values that functions return, in order.
        functions: those that contain the nodes.
    """

    graph: Graph
    tensors: Tensors
    sources: tuple[Any, ...]
    left: tuple[Any, ...]
    functions: tuple[Any, ...]


@dataclass
class _Found:
    """Contractions with their numbers by result, intermediate values, and reasons for other ops.

    Reasons are by function and number of the op there.
    """

    by_result: dict[Any, tuple[Surroundings, int]] = field(default_factory=dict)
    inside: set[Any] = field(default_factory=set)
    reasons: dict[tuple[str, int], str] = field(default_factory=dict)


def traced(module: Any) -> Traced:
    """Return the graph of a module on linalg, all functions in one, with the ops of its nodes.

    A contraction is placed at the last op that it includes, where all its operands exist.
    """
    found, tensors = _contractions(module), Tensors()
    nodes, sources, left, functions = list[Node](), list[Any](), list[Any](), list[Any]()
    for op, function, number in operations(module.operation):
        if op.name in FUNCTIONS:
            functions.append(op)
        is_inside = len(op.results) == 1 and op.results[0] in found.inside
        if op.name in _SKIPPED or is_inside:
            continue
        if op.name in _LEAVES:
            left += op.operands
            for value in op.operands:
                tensors.leave(value)
            continue
        around, place = found.by_result.get(next(iter(op.results), None), (None, 0))
        reason = found.reasons.get((function, number), "")
        if around is not None:
            nodes.append(_contraction(around, place, tensors))
        elif reason or not _is_ahead(op, tensors):
            nodes.append(_other(op, where(op, function, number), tensors, reason))
        sources += [around or op] * (len(nodes) - len(sources))
    for function in functions:
        _keep_arguments(function, tensors)
    graph = Graph(tuple(nodes), tensors.all())
    return Traced(graph, tensors, tuple(sources), tuple(left), tuple(functions))


def _keep_arguments(function: Any, tensors: Tensors) -> None:
    """Make tensors of unused arguments as well, since the caller gives them."""
    for block in list(function.regions[0].blocks)[:1] if len(function.regions) else ():
        for argument in block.arguments:
            if rank(argument):
                tensors.read(argument, "")


def _contractions(module: Any) -> _Found:
    """Return every op that is a problem, with its surroundings."""
    found, place = _Found(), 0
    for one in candidates(module):
        wide = one.found[0] if one.found else one.narrow
        place += wide is not None
        if wide is not None and is_quantised(wide):
            found.reasons[one.at] = "is of unsigned bytes or zero points, which no network runs"
            continue
        if one.seen is None or one.found is None:
            found.reasons[one.at] = one.reason
            continue
        around = surroundings(one.seen, *one.found)
        found.by_result[around.result] = around, place
        found.inside |= around.inside
    return found


def _contraction(around: Surroundings, place: int, tensors: Tensors) -> Node:
    found = around.found
    reads = tuple(
        tensors.read(value, role) for role, value in around.reads if tensors.is_activation(value)
    )
    made = tensors.make(around.result, around.shape, "C")
    return Node("contraction", found.op, found.where, reads, (made,), found, place)


def _other(op: Any, place: str, tensors: Tensors, reason: str) -> Node:
    kind = kind_of(op)
    reads = []
    for number, value in enumerate(op.operands):
        if tensors.is_activation(value):
            is_in_place = kind == "elementwise" and reads_in_place(op, number)
            reads.append(tensors.read(value, "" if is_in_place else "whole"))
    role = "" if kind == "elementwise" else "whole"
    makes = tuple(tensors.make(one, shape_of(one), role) for one in _made(op))
    return Node(kind, op.name, place, tuple(reads), makes, reason=reason)


def _made(op: Any) -> Iterator[Any]:
    return (value for value in op.results if rank(value))


def _is_ahead(op: Any, tensors: Tensors) -> bool:
    """Return whether an op is computed at load time, or has nothing to do with tensors."""
    made = list(_made(op))
    if not made:
        return not any(tensors.is_activation(value) for value in op.operands)
    return all(tensors.is_known(value) for value in made)
