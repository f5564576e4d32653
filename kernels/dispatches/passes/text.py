"""A pass in a library: its executable, the function that calls it, what finds its ops."""

from collections.abc import Iterable, Sequence

from kernels.dispatches.executable import Dispatch, executable_of
from kernels.dispatches.passes.code import CompiledPass
from kernels.dispatches.passes.row_pass import Inner, Uses
from kernels.dispatches.replacement import matcher_of, replacer_text, scalar_text, walk

_HANDLE = "!transform.any_op"
_COUNT = "!transform.param<i64>"


def pass_executable(one: CompiledPass) -> str:
    """The executable of a pass."""
    values = (*one.found.pattern.operands, one.found.pattern.result)
    elements = {name: value.element for name, value in zip(_names(one), values, strict=True)}
    return executable_of(one.name, (_dispatch(one),), elements.__getitem__)


def pass_call(one: CompiledPass) -> str:
    """The function of tensors that takes the place of a pass's ops."""
    *given, result = (*one.found.pattern.operands, one.found.pattern.result)
    dispatch, overwrites = _dispatch(one), one.found.overwrites
    to = result.type if overwrites is None else f"%{dispatch.writes[0]}"
    arguments = ", ".join(
        f"%{name}: {value.type}" for name, value in zip(dispatch.reads, given, strict=True)
    )
    names = ", ".join(f"%{name}" for name in dispatch.reads)
    types = ", ".join(value.type for value in given)
    return f"""  util.func private @{one.name}_call({arguments}) -> {result.type} {{
    %made = flow.dispatch @{one.name}_executable::@{dispatch.name}({names}) : ({types}) -> {to}
    util.return %made : {result.type}
  }}
"""


def pass_sequences(one: CompiledPass) -> str:
    """What finds a pass's ops and puts the call there."""
    checks = [_counted(uses, at) for at, uses in enumerate(one.found.uses)]
    found = matcher_of(f"{one.name}_is", one.found.pattern, checks)
    return found + replacer_text(one.name, one.name)


def pass_pair(one: CompiledPass) -> str:
    """As `transform.foreach_match` takes it."""
    return f"@{one.name}_is -> @{one.name}_use"


def counts_text(passes: Iterable[CompiledPass]) -> str:
    """The sequences that see how many ops read a value.

    What asks for all readers of a value is none of the ops that a matcher may have itself.
    """
    counts = sorted({uses.count for one in passes for uses in one.found.uses})
    return "".join(
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


def inner_ops(passes: Iterable[CompiledPass]) -> Sequence[Inner]:
    """The ops of bodies whose constants are moved there, each once."""
    return list({inner.name: inner for one in passes for inner in one.found.inner}.values())


def inner_text(inner: Inner) -> str:
    """What moves an op's constants in front of it."""
    return scalar_text(inner.name, inner.signature, inner.text, inner.result, inner.type)


def _dispatch(one: CompiledPass) -> Dispatch:
    *reads, result = _names(one)
    written = result if one.found.overwrites is None else reads[one.found.overwrites]
    return Dispatch(
        name=f"run_{one.name}",
        calls=one.function,
        reads=tuple(reads),
        writes=(written,),
        passes=(*reads, written),
        parts=one.parts,
    )


def _names(one: CompiledPass) -> list[str]:
    return [*(f"in{i}" for i in range(len(one.found.pattern.operands))), "out"]


def _counted(uses: Uses, at: int) -> str:
    lines, op = walk(uses.path, f"between{at}")
    return f"{lines}\n    transform.include @{_counter(uses.count)} failures(propagate) ({op}) : \
({_HANDLE}) -> ()"


def _counter(count: int) -> str:
    return f"tilewise_read_by_{count}"
