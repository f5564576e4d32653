"""Ops of a module as the text of a pattern, which reads its operands as arguments."""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

from iree.compiler import ir

from tilewise.kernels.dispatches.patterns.inner import Inner

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


class UnseenError(Exception):
    """No pattern can be cut; the message says why."""


def printed(
    root: Any, operands: Sequence[Any], moved: dict[str, Inner] | None = None
) -> tuple[str, int]:
    """The ops from operands to `root` in MLIR's generic form, and how many they are.

    Operands are `%arg0`, `%arg1`, ... in their order.

    Args:
        root: the last op.
        operands: what the pattern reads.
        moved: where ops of bodies are added whose constants have to be moved into the body for
            the pattern to be found; None where none shall be.

    Raises:
        UnseenError: an op is of another kind, or reads a value that its operands do not lead to.
    """
    ops = between(root, operands)
    _check_captured(ops, may_move=moved is not None)
    _module, function, block = _function([str(value.type) for value in operands])
    known = dict(zip(operands, block.arguments, strict=True))
    end = ir.InsertionPoint.at_block_terminator(block)
    for op in ops:
        made = op.clone(ip=end)
        if moved is not None:
            moved |= {one.name: one for one in _moved_inside(made)}
        _rewire(made, known)
        if op.name == "tensor.empty":
            made.attributes[ANY] = ir.UnitAttr.get()
        known |= zip(op.results, made.results, strict=True)
    return _body(function), len(ops)


def _function(types: Sequence[str]) -> tuple[Any, Any, Any]:
    """A module, which has to outlive all in it, of an empty function of `%arg0`, ...; its block."""
    arguments = ", ".join(f"%arg{i}: {one}" for i, one in enumerate(types))
    module = ir.Module.parse(
        f'"func.func"() <{{function_type = ({", ".join(types)}) -> (), sym_name = "cut"}}> ({{\n'
        f"^bb0({arguments}):\n"
        f'  "func.return"() : () -> ()\n}}) : () -> ()'
    )
    function = module.body.operations[0].operation
    return module, function, function.regions[0].blocks[0]


def _body(function: Any) -> str:
    text = function.get_asm(print_generic_op_form=True, use_local_scope=True)
    has_arguments = len(function.regions[0].blocks[0].arguments) > 0
    head = "^bb0(" if has_arguments else "({"
    _, _, body = text.partition(head)
    return str(body.partition("\n")[2].rpartition('"func.return"')[0].rstrip())


def between(root: Any, operands: Sequence[Any]) -> list[Any]:
    """The ops that `root` depends on, and it, each after what it reads.

    Raises:
        UnseenError: an op is of another kind, or there are too many.
    """
    found: dict[Any, Any] = {}
    leaves = set(operands)

    def add(op: Any) -> None:
        if not op.name.startswith(COPIED) or len(found) > MOST_OPS:
            raise UnseenError(f"{op.name} stands in between")
        for value in op.operands:
            if value in leaves or value in found:
                continue
            if isinstance(value.owner, ir.Block):
                raise UnseenError("an argument is read in between")
            add(value.owner.operation)
        for result in op.results:
            found[result] = op

    add(root)
    return list(found.values())


def _check_captured(ops: Sequence[Any], *, may_move: bool) -> None:
    """Refuse ops whose bodies read what is made by none of them."""
    made = {value for op in ops for value in op.results}
    for op in ops:
        for inner, value in _captured(op):
            if value not in made and not (may_move and _is_moved(inner, value)):
                raise UnseenError(
                    "IREE's matcher does not see a constant that only a body reads, as relu's 0"
                )


def _captured(op: Any) -> Iterator[tuple[Any, Any]]:
    """Values from outside that an op's body reads, each with its reader."""
    for inner, arguments in _inner(op):
        yield from ((inner, value) for value in inner.operands if value not in arguments)


def _is_moved(inner: Any, value: Any) -> bool:
    return inner.name in MOVED and value.owner.operation.name == "arith.constant"


def _moved_inside(op: Any) -> list[Inner]:
    """Give each op of a body constants of its own right in front of it, as a library does."""
    made = []
    for inner, arguments in list(_inner(op)):
        own = [value not in arguments and _is_moved(inner, value) for value in inner.operands]
        if not any(own):
            continue
        made.append(_alone(inner, own))
        for at, is_moved in enumerate(own):
            if is_moved:
                held = inner.operands[at].owner.operation.clone(ip=ir.InsertionPoint(inner))
                inner.operands[at] = held.results[0]
    return made


def _alone(op: Any, constants: Sequence[bool]) -> Inner:
    """An op of a body with its constants, as a function of what else it reads."""
    given = [value for value, is_own in zip(op.operands, constants, strict=True) if not is_own]
    types = [str(value.type) for value in given]
    _module, function, block = _function(types)
    end = ir.InsertionPoint.at_block_terminator(block)
    arguments = iter(block.arguments)
    operands = [
        value.owner.operation.clone(ip=end).results[0] if is_own else next(arguments)
        for value, is_own in zip(op.operands, constants, strict=True)
    ]
    made = op.clone(ip=end)
    for at, value in enumerate(operands):
        made.operands[at] = value
    text = "\n".join(line.strip() for line in _body(function).splitlines())
    names = {f"%arg{i}": one for i, one in enumerate(types)}
    name = f"tilewise_inner_{hashlib.sha256(f'{types} {text}'.encode()).hexdigest()[:12]}"
    result = text.splitlines()[-1].partition(" ")[0]
    return Inner(name, names, text, result, str(made.results[0].type))


def _inner(op: Any) -> Iterator[tuple[Any, set[Any]]]:
    """The ops of a body, with the values that it makes itself."""
    for region in op.regions:
        for block in region.blocks:
            own = set(block.arguments)
            for view in block.operations:
                yield view.operation, own
                own |= set(view.operation.results)


def _rewire(op: Any, known: dict[Any, Any]) -> None:
    """Have an op and its body read the values that stand for those it was copied from."""
    for one in (op, *(inner for inner, _ in _inner(op))):
        for at, value in enumerate(one.operands):
            if value in known:
                one.operands[at] = known[value]
