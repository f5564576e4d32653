"""A pass in a library: its executable, the function that calls it, what finds its ops."""

from collections.abc import Iterable, Sequence

from tilewise.kernels.dispatches.executable import Dispatch, executable_of
from tilewise.kernels.dispatches.passes.code import CompiledPass
from tilewise.kernels.dispatches.passes.row_pass import Uses
from tilewise.kernels.dispatches.patterns.inner import Inner
from tilewise.kernels.dispatches.replacement import (
    JUMPS,
    OWN,
    equal_text,
    matched_text,
    matcher_of,
    replacer_text,
    scalar_text,
    walk,
)

_HANDLE = "!transform.any_op"
_COUNT = "!transform.param<i64>"
OVER = "_over"
"""Of the functions that write over an operand: the end of their names."""
_PRODUCTS = ("linalg.matmul", "linalg.batch_matmul")
"""Of IREE's own: each makes a tensor of its own. IREE may remove other ops later on, such as one
that multiplies by 1: what they read is written over then."""
_ALONE = "tilewise_alone"


_ALONE_TEXT = f"""
  transform.named_sequence @{_ALONE}(%op: {_HANDLE} {{transform.readonly}}, \
%maker: {_HANDLE} {{transform.readonly}}) {{
    %none = transform.param.constant 0 : i64 -> {_COUNT}
    %one = transform.param.constant 1 : i64 -> {_COUNT}
    %around = transform.get_parent_op %op : ({_HANDLE}) -> {_HANDLE}
    %around_maker = transform.get_parent_op %maker : ({_HANDLE}) -> {_HANDLE}
    %both = transform.merge_handles deduplicate %around, %around_maker : {_HANDLE}\
{equal_text("places", "%both", "%one")}\
{matched_text("jumps", JUMPS, "%around")}\
{equal_text("blocks", "%jumps", "%none")}\
{matched_text("calls", ["util.call"], "%around", f" attributes{{{OWN}}}")}\
{matched_text("products", _PRODUCTS, "%around")}
    %makers = transform.merge_handles %calls, %products : {_HANDLE}
    %known = transform.num_associations %makers : ({_HANDLE}) -> {_COUNT}
    %all = transform.merge_handles deduplicate %makers, %maker : {_HANDLE}\
{equal_text("found", "%all", "%known")}
    transform.yield
  }}"""
"""Whether an op is one of those that make a tensor of their own, as often as another op runs."""


def pass_executable(one: CompiledPass) -> str:
    """The executable of a pass."""
    values = (*one.found.pattern.operands, one.found.pattern.result)
    elements = {name: value.element for name, value in zip(_names(one), values, strict=True)}
    return executable_of(
        one.name, [_dispatch(one, suffix) for suffix in _suffixes(one)], elements.__getitem__
    )


def pass_call(one: CompiledPass) -> str:
    """The functions of tensors that take the place of a pass's ops."""
    return "".join(_call(one, suffix) for suffix in _suffixes(one))


def _call(one: CompiledPass, suffix: str) -> str:
    *given, result = (*one.found.pattern.operands, one.found.pattern.result)
    dispatch = _dispatch(one, suffix)
    to = f"%{dispatch.writes[0]}" if suffix else result.type
    arguments = ", ".join(
        f"%{name}: {value.type}" for name, value in zip(dispatch.reads, given, strict=True)
    )
    names = ", ".join(f"%{name}" for name in dispatch.reads)
    types = ", ".join(value.type for value in given)
    return f"""  util.func private @{one.name}_call{suffix}({arguments}) -> {result.type} {{
    %made = flow.dispatch @{one.name}_executable::@{dispatch.name}({names}) : ({types}) -> {to}
    util.return %made : {result.type}
  }}
"""


def pass_sequences(one: CompiledPass) -> str:
    """What finds a pass's ops and puts the call there."""
    found = ""
    for suffix in _suffixes(one):
        checks = [_counted(uses, f"between{at}") for at, uses in enumerate(one.found.uses)]
        checks += _may_overwrite(one.found.kept) if suffix else []
        found += matcher_of(f"{one.name}_is{suffix}", one.found.pattern, checks)
        found += replacer_text(one.name, one.name, suffix)
    return found


def pass_pairs(one: CompiledPass) -> list[str]:
    """As `transform.foreach_match` takes them: the first that fits is the one."""
    return [f"@{one.name}_is{suffix} -> @{one.name}_use{suffix}" for suffix in _suffixes(one)]


def counts_text(passes: Iterable[CompiledPass]) -> str:
    """The sequences that see how many ops read a value.

    What asks for all readers of a value is none of the ops that a matcher may have itself.
    """
    made = list(passes)
    counts = sorted({uses.count for one in made for uses in (*one.found.uses, *one.found.kept)})
    is_written = any(one.found.overwrites is not None for one in made)
    return (_ALONE_TEXT if is_written else "") + "".join(
        f"""
  transform.named_sequence @{_counter(count)}(%op: {_HANDLE} {{transform.readonly}}) {{
    %users = transform.get_consumers_of_result %op[0] : ({_HANDLE}) -> {_HANDLE}
    %found = transform.num_associations %users : ({_HANDLE}) -> {_COUNT}
    %wanted = transform.param.constant {count} : i64 -> {_COUNT}
    transform.match.param.cmpi eq %found, %wanted : {_COUNT}
    transform.yield
  }}"""
        for count in counts
    )


def inner_text(inner: Inner) -> str:
    """What moves an op's constants in front of it."""
    return scalar_text(inner.name, inner.signature, inner.text, inner.result, inner.type)


def _suffixes(one: CompiledPass) -> list[str]:
    """Of the ways in which a pass is called: into an operand's memory first, where it may be."""
    return [""] if one.found.overwrites is None else [OVER, ""]


def _dispatch(one: CompiledPass, suffix: str) -> Dispatch:
    *reads, result = _names(one)
    over = one.found.overwrites if suffix else None
    written = result if over is None else reads[over]
    return Dispatch(
        name=f"run_{one.name}{suffix}",
        calls=one.function,
        reads=tuple(reads),
        writes=(written,),
        passes=(*reads, written),
        parts=one.parts,
    )


def _names(one: CompiledPass) -> list[str]:
    return [*(f"in{i}" for i in range(len(one.found.pattern.operands))), "out"]


def _may_overwrite(reads: Sequence[Uses]) -> list[str]:
    """Whether an operand belongs to the pass alone, in whatever module a library is used.

    IREE copies no argument of the program before it is written over, and nothing that is read
    again in a loop or by another view. Where a pass has nothing that is to be kept, it may
    overwrite the operand anywhere.
    """
    if not reads:
        return []
    lines, op = walk(reads[-1].path, "maker")
    return [
        *(_counted(uses, f"kept{at}") for at, uses in enumerate(reads)),
        f"{lines}\n    transform.include @{_ALONE} failures(propagate) (%root, {op}) : "
        f"({_HANDLE}, {_HANDLE}) -> ()",
    ]


def _counted(uses: Uses, name: str) -> str:
    lines, op = walk(uses.path, name)
    return f"{lines}\n    transform.include @{_counter(uses.count)} failures(propagate) ({op}) : \
({_HANDLE}) -> ()"


def _counter(count: int) -> str:
    return f"tilewise_read_by_{count}"
