"""The nodes of a module in order, each with the tensors that it reads and makes.

A value and its views are one tensor. A contraction is a node with all that it has fused.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from iree.compiler import ir

from tilewise.kernels.mlir.frontend.child.fusion import Ending
from tilewise.kernels.mlir.frontend.child.operations import FUNCTIONS, operations, where
from tilewise.kernels.mlir.frontend.child.recognise import candidates
from tilewise.kernels.mlir.frontend.child.values import (
    MOST_STEPS,
    RESHAPES,
    Structured,
    element,
    is_constant,
    is_copy,
    only_user,
    owner,
    rank,
    splat,
    structured,
)
from tilewise.kernels.mlir.frontend.graph import (
    ARGUMENT,
    Graph,
    Node,
    NodeKind,
    Occurrence,
    Size,
    Tensor,
    Use,
)

VIEWS = (*RESHAPES, "tensor.cast")


class Tensors:
    """The tensors that were met so far, in their order."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._made: list[Any] = []
        self._known: set[Any] = set()
        self._made_here: set[int] = set()
        self._results: set[int] = set()

    def take_as_known(self, value: Any) -> None:
        """Remember a value as one that is computed when the module is loaded."""
        self._known.add(value)

    def is_known(self, value: Any) -> bool:
        """Whether a value is known when the module is loaded, or is a tensor that is not filled."""
        root = root_of(value)
        maker = owner(root)
        is_empty = maker is not None and maker.name == "tensor.empty"
        return root in self._known or is_empty or splat(root) is not None or is_constant(root)

    def is_activation(self, value: Any) -> bool:
        """Whether a value is a tensor that lies between nodes."""
        return bool(rank(value)) and not self.is_known(value)

    def read(self, value: Any, role: str) -> Use:
        """A use of a value; the value itself becomes a tensor."""
        return Use(self._number(root_of(value)), shape_of(value), role)

    def make(self, value: Any, shape: tuple[Size, ...], role: str) -> Use:
        """The use that makes a value, which its maker has in a shape."""
        number = self._number(value)
        self._made_here.add(number)
        return Use(number, shape, role)

    def leave(self, value: Any) -> None:
        """Note that a value leaves the nodes: a function returns it."""
        if self.is_activation(value):
            self._results.add(self._number(root_of(value)))

    def number_of(self, value: Any) -> int | None:
        """The number of the tensor that a value is a view of; None if no node has it."""
        return self._numbers.get(root_of(value))

    def all(self) -> tuple[Tensor, ...]:
        """Those that were met, by number."""
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
    """What a value is a view of."""
    for _ in range(MOST_STEPS):
        op = owner(value)
        if op is None or op.name not in VIEWS:
            break
        value = op.operands[0]
    return value


def shape_of(value: Any) -> tuple[Size, ...]:
    """The shape of a tensor."""
    kind = value.type
    if not isinstance(kind, ir.RankedTensorType):
        return ()
    return tuple(None if kind.is_dynamic_dim(i) else kind.get_dim_size(i) for i in range(kind.rank))


OF_A_PLACE = ("linalg.index", "tensor.extract")
"""In a body: what depends on the order of axes beside the elements that are read in place."""


def kind_of(op: Any) -> NodeKind:
    """What an op is; of an elementwise one each element depends on those at one place alone."""
    seen = structured(op)
    if seen is None:
        is_math = op.name.startswith(("arith.", "math.")) and len(op.results) == 1
        return "elementwise" if is_math and rank(op.results[0]) else "other"
    if seen.name.startswith("linalg.pooling"):
        return "pool"
    return "elementwise" if _is_elementwise(seen) else "other"


def reads_in_place(op: Any, number: int) -> bool:
    """Whether an elementwise op reads an operand at the place that it writes, axis by axis."""
    seen = structured(op)
    if seen is None:
        return bool(op.operands[number].type.shape == op.results[0].type.shape)
    return seen.is_identity(number)


def _is_elementwise(op: Structured) -> bool:
    """Whether no loop reduces, and the result is written in the order of its axes."""
    if not op.is_identity(len(op.inputs)) or not any(rank(value) for value in op.inputs):
        return False
    return op.is_parallel and not any(
        view.operation.name in OF_A_PLACE for view in op.body.operations
    )


_PADS = ("tensor.pad", "tensor.insert_slice")
BIAS = "bias"


@dataclass(frozen=True)
class Surroundings:
    """A contraction among the ops of its module.

    Attributes:
        op: that multiplies.
        reads: its operands outside of what is taken in, by role: A and B of the problem, C where
            the sums start from a tensor, and a bias.
        result: the value after all that is taken in, before views of it.
        shape: of the sums, in the order of axes in which they are stored in the end.
        inside: values on the way, which nobody else reads.
    """

    op: Structured
    found: Occurrence
    reads: tuple[tuple[str, Any], ...]
    result: Any
    shape: tuple[Size, ...]
    inside: frozenset[Any]


def surroundings(op: Structured, found: Occurrence, ending: Ending) -> Surroundings:
    """Follow what `recognised` has taken in, backwards and forwards."""
    inside: set[Any] = set()
    inputs = op.inputs[1::-1] if found.is_swapped else op.inputs[:2]
    reads = [
        (role, _source(value, _taken(found, role), inside))
        for role, value in zip("AB", inputs, strict=True)
    ]
    if ending.added is not None:
        reads.append(("C", ending.added))
    if ending.added is None and "init=accumulate" in found.problem:
        reads.append(("C", op.init))
    if ending.bias is not None:
        reads.append((BIAS, ending.bias))
    after = list(_forward(op.result, ending.value))
    inside |= set(ending.repeated)
    result = root_of(ending.value)
    inside = (inside | set(after)) - {result}
    shape = shape_of(_before_views([*after, ending.value]))
    return Surroundings(op, found, tuple(reads), result, shape, frozenset(inside))


def _before_views(chain: list[Any]) -> Any:
    """The last value of a chain that has the axes of the first, in whatever order."""
    views = (i for i, value in enumerate(chain) if _is_view(value))
    return chain[next(views, len(chain)) - 1]


def _is_view(value: Any) -> bool:
    maker = owner(value)
    return maker is not None and maker.name in VIEWS


def _taken(found: Occurrence, role: str) -> set[str]:
    """What is taken in before an operand."""
    names = {f"transpose_{role.lower()}", f"broadcast_{role.lower()}"}
    return {name for name in found.fused if name in names or (name == "pad" and role == "A")}


def _source(value: Any, taken: set[str], inside: set[Any]) -> Any:
    """What an operand is made of before all that is in `taken`; what lies between is `inside`."""
    passed: list[Any] = []
    for _ in range(MOST_STEPS):
        op = owner(value)
        if not taken or op is None or (only_user(value) is None and not is_constant(value)):
            break
        if op.name in _PADS and "pad" in taken:
            taken = taken - {"pad"}
        elif is_copy(op):
            taken = taken & {"pad"}
        elif op.name not in VIEWS:
            break
        passed.append(value)
        value = op.operands[0]
    inside.update(passed)
    return value


def _forward(value: Any, last: Any) -> Iterator[Any]:
    """The values from an op's result to the last one, without it."""
    while value != last:
        yield value
        user = only_user(value)
        assert user is not None
        value = user.results[0]


_COMPUTED_AHEAD = ("linalg.", "tensor.", "arith.", "math.")
"""Dialects whose ops, on constants alone, a compiler computes when it loads the module."""
_LEAVES = ("func.return", "util.return")
_SKIPPED = (*FUNCTIONS, *VIEWS, ARGUMENT)


@dataclass(frozen=True)
class Traced:
    """A graph with what it was read from.

    Attributes:
        tensors: the numbers of its values.
        sources: of each node the op that it is, or a contraction's surroundings.
        left: the values that functions return, in their order.
        functions: whose ops the nodes are.
    """

    graph: Graph
    tensors: Tensors
    sources: tuple[Any, ...]
    left: tuple[Any, ...]
    functions: tuple[Any, ...]


@dataclass
class _Found:
    """The contractions by their results, what is inside of them, and why other ops are none.

    Contractions come in the order of the module. Reasons are by function and number there.
    """

    by_result: dict[Any, Surroundings] = field(default_factory=dict)
    inside: set[Any] = field(default_factory=set)
    reasons: dict[tuple[str, int], str] = field(default_factory=dict)


def graph_of(module: Any) -> Graph:
    """The graph of a module on linalg, all functions in one."""
    return traced(module).graph


def traced(module: Any) -> Traced:
    """The graph of a module with the ops that its nodes are.

    A contraction comes where the last op stands that it takes in: all that it reads is made then.
    """
    found, tensors = _contractions(module), Tensors()
    places = {result: i for i, result in enumerate(found.by_result, 1)}
    nodes, sources, left, functions = list[Node](), list[Any](), list[Any](), list[Any]()
    for op, function, number in operations(module.operation):
        if op.name in FUNCTIONS:
            functions.append(op)
        if op.name in _SKIPPED or _is_inside(op, found):
            continue
        if op.name in _LEAVES:
            left += op.operands
            for value in op.operands:
                tensors.leave(value)
            continue
        around = found.by_result.get(op.results[0]) if len(op.results) else None
        reason = found.reasons.get((function, number), "")
        if around is not None:
            nodes.append(_contraction(around, tensors, places[around.result]))
        elif reason or not _is_ahead(op, tensors):
            nodes.append(_other(op, where(op, function, number), tensors, reason))
        sources += [around or op] * (len(nodes) - len(sources))
    for function in functions:
        _keep_arguments(function, tensors)
    graph = Graph(tuple(nodes), tensors.all())
    return Traced(graph, tensors, tuple(sources), tuple(left), tuple(functions))


def _keep_arguments(function: Any, tensors: Tensors) -> None:
    """Make tensors of the arguments that nobody reads: the caller gives them all the same."""
    for block in list(function.regions[0].blocks)[:1] if len(function.regions) else ():
        for argument in block.arguments:
            if rank(argument):
                tensors.read(argument, "")


def _contractions(module: Any) -> _Found:
    """Every op that is a problem, with what is around it."""
    found = _Found()
    for one in candidates(module):
        if one.seen is None or one.found is None:
            found.reasons[one.at] = one.reason
            continue
        around = surroundings(one.seen, *one.found)
        found.by_result[around.result] = around
        found.inside |= around.inside
    return found


def _is_inside(op: Any, found: _Found) -> bool:
    return len(op.results) == 1 and op.results[0] in found.inside


def _contraction(around: Surroundings, tensors: Tensors, place: int) -> Node:
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
    """Whether an op is computed when the module is loaded, or has nothing to do with tensors."""
    made = list(_made(op))
    if not made:
        return not any(tensors.is_activation(value) for value in op.operands)
    if all(tensors.is_known(value) for value in made):
        return True
    is_pure = op.name.startswith(_COMPUTED_AHEAD) and len(op.operands)
    if not is_pure or not all(tensors.is_known(value) for value in op.operands):
        return False
    for value in made:
        tensors.take_as_known(value)
    return True
