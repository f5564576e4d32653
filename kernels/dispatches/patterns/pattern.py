"""The patterns of a problem, one for each spelling, and a pattern as a module of its own."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

from tilewise.kernels.dispatches.patterns.contraction import (
    TO_NCHW,
    Addition,
    bias_as_init,
    contraction,
    copied,
    finished,
    operand,
    turns_layout,
)
from tilewise.kernels.dispatches.patterns.graph import ANY, DispatchGraph, Inner, Value
from tilewise.kernels.dispatches.patterns.spelling import OF_RELU6, OF_ROUNDING, SPELLINGS, Spelling
from tilewise.kernels.errors import UnsupportedError
from tilewise.kernels.mlir.payload.factors import widens_ahead
from tilewise.kernels.problem import Problem

Side = Literal["left", "right"]


@dataclass(frozen=True)
class Pattern:
    """A graph of ops that means a problem.

    A path is a list of operands to follow from the root.

    Attributes:
        operands: in the order of the call, each with its own shape.
        size: number of ops.
        once: paths to values that nothing else may read, since the call does not compute them.
        weights, read: paths to B and A.
        constant: the op that makes B, if not a plain constant.
        added: path to C, or `add`, where it is added to the contraction's result.
        init: path to C where the contraction starts from it.
        turns: axes of each operand and of the result in the problem's order; empty for no change.
        bias: the number that every element of the bias is; empty if the bias is an operand.
        inner: ops of bodies whose constants have to be moved into the body first.
        sizes: lines that define the sizes of a range: `%size0`, ...
    """

    operands: tuple[Value, ...]
    result: Value
    text: str
    size: int
    once: tuple[tuple[int, ...], ...]
    weights: tuple[int, ...]
    constant: str = ""
    added: tuple[int, ...] | None = None
    read: tuple[int, ...] = ()
    init: tuple[int, ...] | None = None
    turns: tuple[tuple[int, ...], ...] = ()
    bias: str = ""
    inner: tuple[Inner, ...] = ()
    sizes: tuple[str, ...] = ()

    @property
    def signature(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """The types and axes of operands and result, and a constant bias, part of the call."""
        typed = zip((*self.operands, self.result), self.orders, strict=True)
        return (*((value.type, turn) for value, turn in typed), (self.bias, ()))

    @property
    def orders(self) -> tuple[tuple[int, ...], ...]:
        """The axes of all operands and of the result, empty ones included."""
        return self.turns or ((),) * (len(self.operands) + 1)


def patterns(problem: Problem) -> tuple[Pattern, ...]:
    """Return the distinct patterns of a problem, in all spellings."""
    found: dict[str, Pattern] = {}
    is_residual = problem.accumulates and problem.spatial_axes
    sides: tuple[Side | None, ...] = (None, "left", "right") if is_residual else (None,)
    if problem.add:
        sides = ("left", "right")
    spellings = (
        *SPELLINGS,
        *(OF_RELU6 if problem.ceiling is not None else ()),
        *(OF_ROUNDING if problem.out else ()),
    )
    for spelling, side in product(spellings, sides):
        if problem.accumulates and side is None and turns_layout(spelling, problem):
            continue  # what the sums start from lies in another order than the result
        made = pattern(problem, spelling, side)
        found.setdefault(made.text, made)
    return tuple(found.values())


def pattern(problem: Problem, spelling: Spelling, side: Side | None = None) -> Pattern:
    """Return the pattern of a problem in one spelling.

    `side` is the side of the addition on which C, or `add`, is; by default the sums start from C.

    Raises:
        UnsupportedError: sums would start from results that are rounded.
    """
    of_bytes = "zero" if problem.zero else "b" if problem.b else "dtype"
    for is_refused, why, key in (
        (problem.requant, "requant is not matched", "requant"),
        (problem.quantised_weights, "quantised weights are not matched", "group"),
        (widens_ahead(problem), "unsigned bytes and zero points are not matched", of_bytes),
        (problem.accumulates and problem.out, f"it adds to results in {problem.out}; give add",
         "init"),
    ):  # fmt: skip
        if is_refused:
            raise UnsupportedError(f"{problem} has no dispatch: {why}", key)
    graph = DispatchGraph()
    bias = operand(problem, "bias") if problem.has_bias else None
    held = operand(problem, "C") if problem.accumulates else None
    init = held if side is None else None
    is_init = init is None and spelling.bias == "init" and not turns_layout(spelling, problem)
    if bias is not None and is_init:
        init, bias = bias_as_init(graph, problem, bias), None
    if init is None:
        init = graph.zeros(_result_shape(problem, spelling), problem.element.accumulator)
    sums = contraction(problem, graph, spelling, init)
    if turns_layout(spelling, problem):
        sums = copied(graph, sums, TO_NCHW, problem.operand_shapes["C"])
    added = operand(problem, "add") if problem.add else held
    addition = None if side is None or added is None else Addition(added, side == "left")
    root = finished(graph, spelling, problem, sums, bias, addition)
    names = ["A", "B", *problem.extras]
    names += ["C"] if problem.accumulates else []
    operands = tuple(operand(problem, name) for name in names)
    return Pattern(
        operands, root, graph.text(), len(graph.ops), _once(graph, root),
        graph.path(root.name, "%B"),
        added=None if addition is None else graph.path(root.name, addition.value.name),
        read=graph.path(root.name, "%A"),
        init=None if init is not held or held is None else graph.path(root.name, "%C"),
    )  # fmt: skip


def _result_shape(problem: Problem, spelling: Spelling) -> tuple[int, ...]:
    shape = problem.operand_shapes["C"]
    if turns_layout(spelling, problem):
        n, f, h, w = shape
        return n, h, w, f
    return shape


def _once(graph: DispatchGraph, root: Value) -> tuple[tuple[int, ...], ...]:
    """Return paths to results of linalg between the root and B, without B's own copies."""
    path = graph.path(root.name, "%B")
    at, found = root.name, []
    for steps, step in enumerate(path):
        op = graph.ops[at]
        if steps and op.name.startswith("linalg."):
            found.append(path[:steps])
        if "%A" in _leaves(graph, at) and "%A" not in _leaves(graph, op.operands[step]):
            break  # behind this op B is alone
        at = op.operands[step]
    return tuple(found)


def _leaves(graph: DispatchGraph, name: str) -> set[str]:
    if name not in graph.ops:
        return {name}
    return set().union(*(_leaves(graph, operand) for operand in graph.ops[name].operands))


ENTRY = "main"
SCOPE, WEIGHTS = "model", "B"
"""The parameter that holds constant weights in a module."""
_B = 1  # the place of B among a contraction's operands


def function_of(pattern: Pattern, arguments: Sequence[tuple[str, str]], before: str = "") -> str:
    """Return a function that computes a pattern into its last argument.

    `arguments` are names and types of the others; `before` holds lines that make the remaining
    operands.
    """
    kind = pattern.result.type
    taken = "".join(f"{name}: {of}, " for name, of in (*arguments, ("%result", kind)))
    body = "\n".join((*pattern.sizes, pattern.text.replace(f" {ANY}", "")))
    return f"""func.func @{ENTRY}({taken[:-2]} {{iree.abi.output = 0 : index}}) -> {kind} {{
{before}{body}
  func.return {pattern.result.name} : {kind}
}}
"""


def module_of_contraction(pattern: Pattern, *, has_constant_weights: bool) -> str:
    """Return a module of a pattern of a matmul or a convolution, or of a range of them."""
    arguments = [(value.name, value.type) for value in pattern.operands]
    if not has_constant_weights:
        return function_of(pattern, arguments)
    name, kind = arguments.pop(_B)
    weights = f'util.global private @weights = #flow.parameter.named<"{SCOPE}"::"{WEIGHTS}">'
    before = f"  {name} = util.global.load @weights : {kind}\n"
    return f"{weights} : {kind}\n{function_of(pattern, arguments, before)}"
