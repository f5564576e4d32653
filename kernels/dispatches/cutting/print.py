"""Ops of a module as the text of a pattern, which reads its operands as arguments."""

from collections.abc import Iterator, Sequence
from typing import Any

from iree.compiler import ir

MOST_OPS = 60
COPIED = ("linalg.", "tensor.", "arith.constant")
ANY = "match.operation_name_only"


class UnseenError(Exception):
    """No pattern can be cut; the message says why."""


def printed(root: Any, operands: Sequence[Any]) -> tuple[str, int]:
    """The ops from operands to `root` in MLIR's generic form, and how many they are.

    Operands are `%arg0`, `%arg1`, ... in their order.

    Raises:
        UnseenError: an op is of another kind, or reads a value that its operands do not lead to.
    """
    ops = _slice(root, operands)
    types = ", ".join(str(value.type) for value in operands)
    arguments = ", ".join(f"%arg{i}: {value.type}" for i, value in enumerate(operands))
    module = ir.Module.parse(
        f'"func.func"() <{{function_type = ({types}) -> (), sym_name = "cut"}}> ({{\n'
        f"^bb0({arguments}):\n"
        f'  "func.return"() : () -> ()\n}}) : () -> ()'
    )
    function = module.body.operations[0]
    block = function.regions[0].blocks[0]
    known = dict(zip(operands, block.arguments, strict=True))
    end = ir.InsertionPoint.at_block_terminator(block)
    for op in ops:
        made = op.clone(ip=end)
        _rewire(made, known)
        if op.name == "tensor.empty":
            made.attributes[ANY] = ir.UnitAttr.get()
        known |= zip(op.results, made.results, strict=True)
    return _body(function.operation), len(ops)


def _body(function: Any) -> str:
    text = function.get_asm(print_generic_op_form=True, use_local_scope=True)
    _, _, body = text.partition("^bb0(")
    return str(body.partition(":\n")[2].rpartition('"func.return"')[0].rstrip())


def _slice(root: Any, operands: Sequence[Any]) -> list[Any]:
    """The ops that `root` depends on, and it, each after what it reads."""
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
    ops = list(found.values())
    for op in ops:
        for value in _captured(op):
            if value not in found:
                raise UnseenError(
                    "IREE's matcher does not see a constant that only a body reads, as relu's 0"
                )
    return ops


def _captured(op: Any) -> Iterator[Any]:
    """Values from outside that an op's body reads."""
    for inner, arguments in _inner(op):
        yield from (value for value in inner.operands if value not in arguments)


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
