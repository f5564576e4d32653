"""Extract one op, with what its problem includes, as a pattern."""

import hashlib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from math import isfinite, prod
from typing import Any

from iree.compiler import ir

from tilewise.kernels.dispatches.extraction.dynamic import DynamicTensors, Sizes, UnknownSizeError
from tilewise.kernels.dispatches.extraction.extract import Cut
from tilewise.kernels.dispatches.library import CONSTANTS
from tilewise.kernels.dispatches.patterns.any_size import size_lines
from tilewise.kernels.dispatches.patterns.graph import Inner, Value
from tilewise.kernels.dispatches.patterns.pattern import Pattern
from tilewise.kernels.errors import ProblemError
from tilewise.kernels.mlir.frontend.child.candidates import CandidateOp
from tilewise.kernels.mlir.frontend.child.dataflow import BIAS, forward, surroundings
from tilewise.kernels.mlir.frontend.child.fusion import Ending
from tilewise.kernels.mlir.frontend.child.recognise import PARTS, recognised
from tilewise.kernels.mlir.frontend.child.values import RESHAPES, Structured, body_operations, owner
from tilewise.kernels.mlir.frontend.child.writing import copied, parsed_function
from tilewise.kernels.mlir.frontend.dims import problem_over
from tilewise.kernels.mlir.frontend.graph import Occurrence
from tilewise.kernels.mlir.frontend.nest import NestRefusedError
from tilewise.kernels.problem import EPILOGUES, Problem, ProblemRange, parse_any, parse_problem

MOST_OPS = 60
MOVED = (
    *(f"arith.{name}" for name in ("addf", "subf", "mulf", "divf", "truncf")),
    *(f"arith.{name}" for name in ("maximumf", "maxnumf", "minimumf", "minnumf")),
    "math.powf",
    "math.fpowi",
    "arith.addi",
)
"""Ops of bodies whose constants a library moves into the body."""
COPIED = ("linalg.", "tensor.", "arith.constant", "arith.addf", "arith.addi")
ANY = "match.operation_name_only"
EMPTY = "tensor.empty"


class UnseenError(Exception):
    """No pattern can be extracted; the message says why."""


def printed(
    root: Any, operands: Sequence[Any], number_of: Callable[[Any], int]
) -> tuple[str, int, tuple[Inner, ...]]:
    """Return the ops from `operands` (`%arg0`, ...) to `root` in generic form, and their number.

    The third value holds the ops of bodies whose constants must be moved into the body. Sizes of
    empty tensors have the names `%size0`, ..., numbered by `number_of`.

    Raises:
        UnseenError: an op is of another kind, or reads a value outside of the operands.
    """
    ops = _between(root, operands)
    _check_captured(ops)
    moved: dict[str, Inner] = {}
    sizes = {value: None for op in ops if op.name == EMPTY for value in op.operands}
    given = [*operands, *sizes]
    module, block, end = _function([str(value.type) for value in given])
    known = dict(zip(given, block.arguments, strict=True))
    for op in ops:
        made = copied(op, known, end)
        moved |= {one.name: one for one in _moved_inside(made)}
        if op.name == EMPTY:
            made.attributes[ANY] = ir.UnitAttr.get()
    text = _body(module)
    for place, value in enumerate(sizes, len(operands)):
        text = re.sub(rf"%arg{place}\b", f"%size{number_of(value)}", text)
    return text, len(ops), tuple(moved.values())


def _function(types: Sequence[str]) -> tuple[Any, Any, Any]:
    """Return a module (keep it alive), the block of its function of `%arg0`, ..., and the end."""
    arguments = ", ".join(f"%arg{i}: {one}" for i, one in enumerate(types))
    return parsed_function(
        f'"func.func"() <{{function_type = ({", ".join(types)}) -> (), sym_name = "cut"}}> ({{\n'
        f"^bb0({arguments}):\n"
        f'  "func.return"() : () -> ()\n}}) : () -> ()',
        ir.Context.current,
    )


def _body(module: Any) -> str:
    function = module.body.operations[0].operation
    text = function.get_asm(print_generic_op_form=True, use_local_scope=True)
    has_arguments = len(function.regions[0].blocks[0].arguments) > 0
    head = "^bb0(" if has_arguments else "({"
    _, _, body = text.partition(head)
    return str(body.partition("\n")[2].rpartition('"func.return"')[0].rstrip())


def _between(root: Any, operands: Sequence[Any]) -> list[Any]:
    """Return the ops that `root` depends on, and it, each after what it reads."""
    found: dict[Any, Any] = {}
    leaves = set(operands)

    def add(op: Any) -> None:
        if not op.name.startswith(COPIED) or len(found) > MOST_OPS:
            raise UnseenError(f"{op.name} stands in between")
        for value in () if op.name == EMPTY else op.operands:
            if value in leaves or value in found:
                continue
            if isinstance(value.type, ir.IndexType):
                raise UnseenError(f"{op.name} of a dynamic size stands in between")
            if isinstance(value.owner, ir.Block):
                raise UnseenError("an argument is read in between")
            add(value.owner.operation)
        found.update(dict.fromkeys(op.results, op))

    add(root)
    return list(found.values())


def _check_captured(ops: Sequence[Any]) -> None:
    """Refuse ops whose bodies read values that none of the ops makes."""
    made = {value for op in ops for value in op.results}
    for inner, own in (one for op in ops for one in body_operations(op)):
        for value in inner.operands:
            if value not in own and value not in made and not _is_moved(inner, value):
                raise UnseenError(
                    "IREE's matcher does not see a constant that only a body reads, as relu's 0"
                )


def _is_moved(inner: Any, value: Any) -> bool:
    return inner.name in MOVED and value.owner.operation.name == "arith.constant"


def _moved_inside(op: Any) -> list[Inner]:
    """Copy constants in front of each op of a body that reads them, as a library does."""
    made = []
    for inner, own in list(body_operations(op)):
        moved = [value not in own and _is_moved(inner, value) for value in inner.operands]
        if not any(moved):
            continue
        made.append(_alone(inner, moved))
        for at, is_moved in enumerate(moved):
            if is_moved:
                held = inner.operands[at].owner.operation.clone(ip=ir.InsertionPoint(inner))
                inner.operands[at] = held.results[0]
    return made


def _alone(op: Any, constants: Sequence[bool]) -> Inner:
    """Return an op of a body with its constants, as a function of its other operands."""
    given = [value for value, is_own in zip(op.operands, constants, strict=True) if not is_own]
    types = [str(value.type) for value in given]
    module, block, end = _function(types)
    at_end = ir.InsertionPoint(end)
    arguments = iter(block.arguments)
    operands = [
        value.owner.operation.clone(ip=at_end).results[0] if is_own else next(arguments)
        for value, is_own in zip(op.operands, constants, strict=True)
    ]
    made = op.clone(ip=at_end)
    for at, value in enumerate(operands):
        made.operands[at] = value
    text = "\n".join(line.strip() for line in _body(module).splitlines())
    names = {f"%arg{i}": one for i, one in enumerate(types)}
    name = f"tilewise_inner_{hashlib.sha256(f'{types} {text}'.encode()).hexdigest()[:12]}"
    result = text.splitlines()[-1].partition(" ")[0]
    return Inner(name, names, text, result, str(made.results[0].type))


@dataclass(frozen=True)
class _Found:
    """An op as its problem, or range of problems; the occurrence is that at the last sample."""

    problem: str
    occurrence: Occurrence
    ending: Ending
    sizes: Sizes = ()


def cut_out(candidate: CandidateOp, dynamic: DynamicTensors) -> Cut:
    """Return an op's problem with its pattern, or an empty problem and a reason.

    If no pattern includes all that surrounds the op, leave out as little as possible. In a module
    with dynamic tensors the problem is that of all samples.
    """
    seen, where, found, reason = candidate.seen, candidate.where, None, candidate.reason
    try:
        found = None if seen is None else _recognised(seen, where, dynamic)
    except NestRefusedError as error:
        reason = str(error)
    if seen is None or found is None:
        return Cut("", where, reason=reason or "is a problem of some sizes alone")
    try:
        return _cut(seen, where, found, dynamic)
    except UnseenError as error:
        whole = found.problem
        less = _with_less(seen, where, found.occurrence.fused, dynamic)
        return Cut(whole, where, reason=str(error)) if less is None else replace(less, whole=whole)


def _recognised(
    op: Structured, where: str, dynamic: DynamicTensors, without: Collection[str] = ()
) -> _Found | None:
    """Return what `recognised` returns, at all samples of a dynamic module together."""
    if dynamic.dim is None:
        found = recognised(op, where, without)
        return None if found is None else _Found(found[0].problem, *found)
    samples = list[tuple[Occurrence, Ending]]()
    for sample in range(len(dynamic.dim.samples)):
        dynamic.set_sample(sample)
        found = recognised(op, where, without)
        if found is None:
            return None
        samples.append(found)
    problems = [occurrence.problem for occurrence, _ in samples]
    try:
        whole = parse_any(problem_over(problems, dynamic.dim))
    except ProblemError as error:
        raise NestRefusedError(str(error)) from error
    sizes: Sizes = ()
    if isinstance(whole, ProblemRange):
        sizes = tuple(whole.size_of(parse_problem(one))[0] for one in problems)
    return _Found(whole.canonical, *samples[-1], sizes)


def _with_less(
    op: Structured, where: str, fused: Collection[str], dynamic: DynamicTensors
) -> Cut | None:
    """Return an op with as much of its surroundings as possible; None if nothing works."""
    parts = [part for part in PARTS if any(_part(name) == part for name in fused)]
    for count in range(1, len(parts) + 1):
        for without in combinations(parts, count):
            with suppress(NestRefusedError, UnseenError):
                found = _recognised(op, where, dynamic, without)
                if found is not None:
                    return _cut(op, where, found, dynamic)
    return None


def _part(name: str) -> str:
    """Return which of `PARTS` a fused step is."""
    is_copy_of_one = name.startswith(("transpose", "broadcast"))
    return "copies" if is_copy_of_one else "relu" if name in EPILOGUES else name


def _cut(op: Structured, where: str, found: _Found, dynamic: DynamicTensors) -> Cut:
    """Return an op with its pattern."""
    problem = parse_problem(found.occurrence.problem)
    if problem.function.is_smooth:
        raise UnseenError("IREE's matcher does not see constants of a body with exp, erf or tanh")
    if found.sizes and problem.accumulates:
        raise UnseenError("kernels of ranges do not add to a tensor")
    extents = _Extents(dynamic, found.sizes)
    return Cut(found.problem, where, _pattern(op, found, problem, extents))


class _Extents:
    """The dynamic extents of a pattern by number: 0 is the size of the range, if it has one."""

    def __init__(self, dynamic: DynamicTensors, sizes: Sizes) -> None:
        self.dynamic, self._has_size = dynamic, bool(sizes)
        self._numbers = {sizes: 0} if sizes else dict[Sizes, int]()

    def _number(self, sizes: Sizes) -> int:
        if not self._has_size:
            raise UnseenError("its shape is dynamic, but its problem has a single size")
        return self._numbers.setdefault(sizes, len(self._numbers))

    def number_of(self, value: Any) -> int:
        """Return the number of an extent that an op reads."""
        try:
            return self._number(self.dynamic.number(value))
        except UnknownSizeError as error:
            raise UnseenError("a dynamic size stands in between") from error

    def typed(self, name: str, value: Any) -> Value:
        """Return a value with its shape and its element type."""
        found = self.dynamic.extents(value)
        shape = tuple(one if isinstance(one, int) else -1 - self._number(one) for one in found)
        return Value(name, shape, str(value.type.element_type))

    def lines(self, operands: Sequence[Value]) -> tuple[str, ...]:
        """Return the lines that define all extents; one may be a multiple of an operand's."""
        read = {one: size_lines(operands, number) for one, number in self._numbers.items()}
        lines = [line for found in read.values() for line in found]
        for sizes in (one for one, found in read.items() if not found):
            number, (factor, source) = self._numbers[sizes], self._multiple(sizes, read)
            lines += [
                f"%factor{number} = arith.constant {factor} : index",
                f"%size{number} = arith.muli %size{source}, %factor{number} : index",
            ]
        return tuple(lines)

    def _multiple(self, sizes: Sizes, read: Mapping[Sizes, Sequence[str]]) -> tuple[int, int]:
        """Return of which operand's extent a size is a multiple, after the factor."""
        for one, number in self._numbers.items():
            factor = sizes[0] // one[0] if one[0] else 0
            if read[one] and sizes == tuple(factor * extent for extent in one):
                return factor, number
        raise UnseenError("its size is no multiple of an extent of its operands")


def _pattern(op: Structured, found: _Found, problem: Problem, extents: _Extents) -> Pattern:
    occurrence, ending = found.occurrence, found.ending
    operands, users = _read(op, occurrence, problem, ending), _users(op, ending)
    root, values = users[-1], tuple(operands.values())
    with extents.dynamic.as_declared():
        text, size, moved = printed(root, values, extents.number_of)
    typed = tuple(extents.typed(f"%arg{i}", value) for i, value in enumerate(values))
    *_, last = (line for line in text.splitlines() if line.startswith("  %"))
    result = extents.typed(last.split()[0], root.results[0])
    path = _path(op, users)
    a, b = occurrence.inputs
    steps_to_a = _steps_between(op.inputs[a], operands["A"])
    steps_to_b = _steps_between(op.inputs[b], operands["B"])
    maker = owner(operands["B"])
    name = maker.name if maker is not None else ""
    return Pattern(
        operands=typed,
        result=result,
        text=text,
        size=size,
        once=tuple(
            path[:at] for at in range(1, len(users)) if users[-1 - at].name.startswith("linalg.")
        ),
        weights=(*path, b, *[0] * steps_to_b),
        constant="" if name in CONSTANTS else name,
        added=None if ending.added is None else _path_to(ending.added, users, path),
        read=(*path, a, *[0] * steps_to_a),
        init=(*path, len(op.inputs)) if problem.accumulates and ending.added is None else None,
        turns=_turns(occurrence, operands, users),
        bias=_number(problem, ending),
        inner=moved,
        sizes=extents.lines(typed),
    )


def _turns(
    occurrence: Occurrence, operands: Mapping[str, Any], users: Sequence[Any]
) -> tuple[tuple[int, ...], ...]:
    """Return the axes of operands and result in the problem's order, empty for the same order."""
    if occurrence.is_plain:
        return ()
    if occurrence.c.moves and any(user.name in RESHAPES for user in users):
        raise UnseenError("its result lies in another order, and is reshaped")
    turns = []
    for name, value in (*operands.items(), ("C", users[-1].results[0])):
        if name == "bias" and occurrence.c.moves and len(value.type.shape) > 1:
            raise UnseenError("its result lies in another order, and the bias has several dims")
        one = occurrence.arrangements.get(name)
        turns.append(one.axes if one is not None and one.moves else ())
    return tuple(turns)


def _number(problem: Problem, ending: Ending) -> str:
    """Return the bias as MLIR writes it if it is a number, else an empty string."""
    if not problem.has_bias or ending.bias is not None:
        return ""
    if not isfinite(ending.number):
        raise UnseenError(f"the bias is {ending.number}")
    return f"{ending.number:.17e}" if problem.element.is_float else str(ending.number)


def _read(
    op: Structured, occurrence: Occurrence, problem: Problem, ending: Ending
) -> dict[str, Any]:
    """Return the values that a pattern reads, in the call's order."""
    reads = dict(surroundings(op, occurrence, ending).reads)
    operands = {name: reads[name] for name in ("A", "B", BIAS, "add", "C") if name in reads}
    for name, value in operands.items():
        if prod(value.type.shape) != prod(problem.operand_shapes[name]):
            raise UnseenError(f"{name} is {value.type}, which is not of the problem's size")
    if len(set(operands.values())) < len(operands):
        raise UnseenError("one value is two of its operands")
    return operands


def _steps_between(value: Any, source: Any) -> int:
    """Return the number of ops that pad, broadcast or transpose a source to a value."""
    steps = 0
    while value != source:
        value, steps = value.owner.operands[0], steps + 1
    return steps


def _users(op: Structured, ending: Ending) -> tuple[Any, ...]:
    """Return the op and the ops that follow it, without reshapes at the end."""
    before = forward(op.result, ending.value)
    if any(len(list(value.uses)) > 1 for value in before):
        raise UnseenError("its function is several ops, of which two read one value")
    found = [value.owner.operation for value in (*before, ending.value)]
    while found[-1].name in RESHAPES:
        found.pop()
    return tuple(found)


def _path(op: Structured, users: Sequence[Any]) -> tuple[int, ...]:
    """Return which operand to follow at each op from the last user to the op."""
    found = [
        next(i for i, value in enumerate(user.operands) if value == before.results[0])
        for before, user in pairwise(users)
    ]
    assert users[0] == op.op
    return tuple(reversed(found))


def _path_to(added: Any, users: Sequence[Any], path: tuple[int, ...]) -> tuple[int, ...]:
    """Return which operand to follow at each op from the last user to the added tensor."""
    at, operand = next(
        (at, i)
        for at, user in enumerate(users)
        for i, value in enumerate(user.operands)
        if value == added
    )
    return (*path[: len(users) - 1 - at], operand)
