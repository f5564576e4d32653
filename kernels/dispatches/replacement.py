"""The sequences that find a problem's ops and put its kernel there."""

from collections.abc import Sequence
from textwrap import indent

from tilewise.kernels.dispatches.entry import Compiled
from tilewise.kernels.dispatches.patterns.pattern import Pattern
from tilewise.kernels.dispatches.patterns.relu import Limit
from tilewise.kernels.mlir.frontend.graph import ARGUMENT, SAME_BYTES

CONSTANTS = '"arith.constant", "util.global.load", "flow.tensor.constant"'
"""What makes a value that is the same in every run; a global that changes is a rare one."""

LEAVE = "tilewise_leave"
OWN = "tilewise_own"
"""The attribute of calls that a library puts into a module, until they are inlined."""
ONCE = "tilewise_once"
ALONE = "tilewise_alone"
MAKERS = ("util.call", "linalg.generic", "linalg.fill", "linalg.matmul", "linalg.batch_matmul",
          "linalg.conv_2d_nhwc_hwcf", "linalg.conv_2d_nchw_fchw")  # fmt: skip
"""What makes most of the tensors that sums start from; of what others make there is a copy."""
JUMPS = ("cf.br", "cf.cond_br", "cf.switch")
MOST_RESHAPES = 2
"""Between an argument and an op: canonicalisation leaves no longer chain."""

_HANDLE = "!transform.any_op"
_VALUES = "!transform.any_value"
_COUNT = "!transform.param<i64>"


def matcher_text(kernel: Compiled, name: str, pattern: Pattern) -> str:
    """Finds, by a name, the ops of one pattern, where nobody else reads what lies between them.

    Where the pattern adds a tensor, the kernel writes over it. So that tensor is made by an op:
    what a function is given may be A, too. Further sequences (`left_names`) find what is left
    to IREE: an argument of the program, which belongs to the caller; A itself; and either of the
    two in another shape, since then they may be one tensor, or an argument. Where the sums
    start from a tensor, they find those that nothing else reads: of others the kernel gets a
    copy, since IREE makes none of an argument (iree-org/iree#16168), nor for an op that reads it
    twice.
    """
    checks = [_used_once(path, i) for i, path in enumerate(pattern.once)]
    if kernel.found.accumulates:
        checks.append(f"\n    transform.include @{ONCE} failures(propagate) (%root) : "
                      f"({_HANDLE}) -> ()")  # fmt: skip
    if kernel.found.has_constant_weights:
        checks.append(_is_constant(pattern))
    more: list[str] = []
    if pattern.added is not None:
        checks.append(walk(pattern.added, "made")[0])
        left = (
            _is_made_by((ARGUMENT, *SAME_BYTES), pattern.added, 0),
            _is_made_by(SAME_BYTES, pattern.read, 0),
            _is_read_too(pattern),
        )
        more = [matcher_of(one, pattern, [check])
                for one, check in zip(left_names(name), left, strict=True)]  # fmt: skip
    if pattern.init is not None:
        more = [matcher_of(one, pattern, [*checks, _is_alone(pattern.init, reshapes)])
                for reshapes, one in enumerate(alone_names(name))]  # fmt: skip
    return "".join([matcher_of(name, pattern, checks), *more])


def left_names(matcher: str) -> list[str]:
    """Return the sequences that find a matcher's ops where what they add is not to be written."""
    return [f"{matcher}_{why}" for why in ("given", "reshaped", "self")]


def alone_names(matcher: str) -> list[str]:
    """The sequences that find a matcher's ops where nothing else reads what sums start from."""
    return [f"{matcher}_alone{reshapes}" for reshapes in range(MOST_RESHAPES + 1)]


def alone_text() -> str:
    """Whether a value has one use, and its function returns nothing but what it makes."""
    return f"""
  transform.named_sequence @{ALONE}(%op: {_HANDLE} {{transform.readonly}}) {{
    %one = transform.param.constant 1 : i64 -> {_COUNT}
    %users = transform.get_consumers_of_result %op[0] : ({_HANDLE}) -> {_HANDLE}\
{equal_text("used", "%users", "%one")}
    %around = transform.get_parent_op %op : ({_HANDLE}) -> {_HANDLE}\
{matched_text("return", ("util.return",), "%around")}
    %values = transform.get_operand %return[all] : ({_HANDLE}) -> {_VALUES}
    %made = transform.get_defining_op %values : ({_VALUES}) -> {_HANDLE}
    transform.yield
  }}"""


def leave_text() -> str:
    """Takes ops that were found and leaves them as they are."""
    return f"""
  transform.named_sequence @{LEAVE}(%ins: {_VALUES} {{transform.readonly}}, \
%out: {_VALUES} {{transform.readonly}}) {{
    transform.yield
  }}"""


def once_text() -> str:
    """Whether an op is run once by its function: a kernel that adds to a tensor writes over it,
    and IREE copies nothing that a loop reads again.
    """
    return f"""
  transform.named_sequence @{ONCE}(%op: {_HANDLE} {{transform.readonly}}) {{
    %none = transform.param.constant 0 : i64 -> {_COUNT}
    %around = transform.get_parent_op %op : ({_HANDLE}) -> {_HANDLE}
    transform.match.operation_name %around ["util.func"] : {_HANDLE}\
{matched_text("jumps", JUMPS, "%around")}\
{equal_text("found", "%jumps", "%none")}
    transform.yield
  }}"""


def matched_text(name: str, ops: Sequence[str], around: str, having: str = "") -> str:
    """A line that gives the ops of some names in another op a name."""
    listed = ", ".join(f'"{op}"' for op in ops)
    return f"""
    %{name} = transform.structured.match ops{{[{listed}]}}{having} in {around} \
: ({_HANDLE}) -> {_HANDLE}"""


def equal_text(name: str, handle: str, count: str) -> str:
    """Lines that hold where a handle has so many ops."""
    return f"""
    %{name} = transform.num_associations {handle} : ({_HANDLE}) -> {_COUNT}
    transform.match.param.cmpi eq %{name}, {count} : {_COUNT}"""


def matcher_of(name: str, pattern: Pattern, checks: Sequence[str]) -> str:
    """Finds, by a name, the ops of one pattern for which some checks hold."""
    operands = ", ".join(f"{value.name}: {value.type}" for value in pattern.operands)
    return f"""
  transform.named_sequence @{name}(%root: {_HANDLE} {{transform.readonly}}) \
-> ({_VALUES}, {_VALUES}) {{
    %ins, %out = transform.iree.match.cast_compatible_dag_from_root %root {{
      ^bb0({operands}):
{indent(pattern.text, " " * 8)}
    }} : ({_HANDLE}) -> ({_VALUES}, {_VALUES}){"".join(checks)}
    transform.yield %ins, %out : {_VALUES}, {_VALUES}
  }}"""


def replacer_text(code: str, name: str, suffix: str = "") -> str:
    """Puts a call of some code, by the function of a name, where the ops were found."""
    return f"""
  transform.named_sequence @{name}_use{suffix}(%ins: {_VALUES} {{transform.readonly}}, \
%out: {_VALUES} {{transform.readonly}}) {{
    %root = transform.get_defining_op %out : ({_VALUES}) -> {_HANDLE}
    %module = transform.util.get_nearest_symbol_table %root : ({_HANDLE}) -> {_HANDLE}
    %code = transform.util.import_symbol @{code}_executable into %module if undefined \
: ({_HANDLE}) -> {_HANDLE}
    %call = transform.util.import_symbol @{name}_call{suffix} into %module if undefined \
: ({_HANDLE}) -> {_HANDLE}
    %done = transform.util.cast_and_call %call(%ins) -> %out after %root {{
      transform.type_conversion.tensor.cast_shape_dynamic_dims
    }} : ({_HANDLE}, {_VALUES}, {_VALUES}, {_HANDLE}) -> {_HANDLE}
    transform.annotate %done "{OWN}" : {_HANDLE}
    transform.yield
  }}"""


def relu_text(relu: Limit, element: str) -> str:
    """The function of a relu, and what puts a call of it in the place of its ops."""
    body = "\n".join(relu.body(element))
    return scalar_text(relu.symbol(element), relu.signature(element), body, relu.result, element)


def scalar_text(name: str, signature: str, body: str, result: str, element: str) -> str:
    """A function of scalars, and what puts a call of it in the place of its ops.

    Args:
        name: of the function.
        signature: its arguments with their types.
        body: its ops.
        result: what the last of them makes.
        element: the type of that.
    """
    return f"""
  util.func private @{name}({signature}) -> {element} {{
{indent(body, "    ")}
    util.return {result} : {element}
  }}
  transform.named_sequence @{name}_is(%root: {_HANDLE} {{transform.readonly}}) \
-> ({_VALUES}, {_VALUES}) {{
    %ins, %out = transform.iree.match.cast_compatible_dag_from_root %root {{
      ^bb0({signature}):
{indent(body, " " * 8)}
    }} : ({_HANDLE}) -> ({_VALUES}, {_VALUES})
    transform.yield %ins, %out : {_VALUES}, {_VALUES}
  }}
  transform.named_sequence @{name}_use(%ins: {_VALUES} {{transform.readonly}}, \
%out: {_VALUES} {{transform.readonly}}) {{
    %root = transform.get_defining_op %out : ({_VALUES}) -> {_HANDLE}
    %module = transform.util.get_nearest_symbol_table %root : ({_HANDLE}) -> {_HANDLE}
    %call = transform.util.import_symbol @{name} into %module if undefined \
: ({_HANDLE}) -> {_HANDLE}
    transform.util.cast_and_call %call(%ins) -> %out after %root \
: ({_HANDLE}, {_VALUES}, {_VALUES}, {_HANDLE}) -> {_HANDLE}
    transform.yield
  }}"""


def walk(path: tuple[int, ...], name: str) -> tuple[str, str]:
    """Lines that follow a path of operands from the root, and the handle that they end at."""
    lines, at = "", "%root"
    for i, step in enumerate(path):
        lines += f"""
    %{name}_{i} = transform.get_producer_of_operand {at}[{step}] : ({_HANDLE}) -> {_HANDLE}"""
        at = f"%{name}_{i}"
    return lines, at


def _used_once(path: tuple[int, ...], at: int) -> str:
    lines, op = walk(path, f"between{at}")
    return f"""{lines}
    transform.match.structured failures(propagate) {op} : {_HANDLE} {{
    ^bb0(%op: {_HANDLE}):
      %user = "transform.match.structured.result"(%op) <{{position = 0 : i64, single}}> \
: ({_HANDLE}) -> {_HANDLE}
      transform.match.structured.yield
    }}"""


def _is_constant(pattern: Pattern) -> str:
    lines, op = walk(pattern.weights, "weights")
    names = f'{CONSTANTS}, "{pattern.constant}"' if pattern.constant else CONSTANTS
    return f"{lines}\n    transform.match.operation_name {op} [{names}] : {_HANDLE}"


def _is_made_by(makers: Sequence[str], path: tuple[int, ...], reshapes: int) -> str:
    """Whether the value at the end of a path is what some ops make, behind so many reshapes."""
    lines, op = walk((*path, *[0] * reshapes), "given")
    names, of = (", ".join(f'"{name}"' for name in one) for one in (SAME_BYTES, makers))
    between = "".join(
        f"\n    transform.match.operation_name %given_{at} [{names}] : {_HANDLE}"
        for at in range(len(path) - 1, len(path) + reshapes - 1)
    )
    return f"{lines}{between}\n    transform.match.operation_name {op} [{of}] : {_HANDLE}"


def _is_read_too(pattern: Pattern) -> str:
    """Whether A and the tensor that is added are made by one op."""
    assert pattern.added is not None
    a, of_a = walk(pattern.read, "read")
    c, of_c = walk(pattern.added, "added")
    return f"""{a}{c}
    %makers = transform.merge_handles deduplicate {of_a}, {of_c} : {_HANDLE}
    %one = transform.param.constant 1 : i64 -> {_COUNT}\
{equal_text("same", "%makers", "%one")}"""


def _is_alone(path: tuple[int, ...], reshapes: int) -> str:
    """Whether that value has no other use, nor what it is reshaped from."""
    return _is_made_by((ARGUMENT, *MAKERS), path, reshapes) + "".join(
        f"\n    transform.include @{ALONE} failures(propagate) (%given_{at}) : ({_HANDLE}) -> ()"
        for at in range(len(path) - 1, len(path) + reshapes)
    )
