"""A library: the transform script that replaces ops by tuned kernels before IREE's own passes."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import indent
from types import MappingProxyType

from tilewise.kernels.dispatches.executable import (
    CompiledEntry,
    LibraryEntry,
    aliases_text,
    call_text,
    compiled,
    executable_text,
)
from tilewise.kernels.dispatches.patterns.graph import Inner
from tilewise.kernels.dispatches.patterns.pattern import Pattern, patterns
from tilewise.kernels.dispatches.patterns.spelling import Limit, limits_of
from tilewise.kernels.mlir.frontend.graph import ARGUMENT, SAME_BYTES
from tilewise.kernels.problem import Problem
from tilewise.kernels.quoting import one_line
from tilewise.kernels.target.model import Target

CONSTANTS = '"arith.constant", "util.global.load", "flow.tensor.constant"'
"""Ops whose value is the same in every run; mutable globals are rare."""

LEAVE = "tilewise_leave"
ONCE = "tilewise_once"
ALONE = "tilewise_alone"
MAKERS = ("util.call", "linalg.generic", "linalg.fill", "linalg.matmul", "linalg.batch_matmul",
          "linalg.conv_2d_nhwc_hwcf", "linalg.conv_2d_nchw_fchw")  # fmt: skip
"""Ops that make most of the tensors that sums start from; the results of others are copied."""
JUMPS = ("cf.br", "cf.cond_br", "cf.switch")
MOST_RESHAPES = 2
"""Between an argument and an op: canonicalisation leaves no longer chain."""

_HANDLE = "!transform.any_op"
_VALUES = "!transform.any_value"
_COUNT = "!transform.param<i64>"


def matcher_text(kernel: CompiledEntry, name: str, pattern: Pattern) -> str:
    """Return matchers of one pattern, where nothing else reads its intermediate values.

    If the pattern adds a tensor, the kernel overwrites it, so an op must have made it. Further
    sequences (`left_names`) catch what is left to IREE: arguments, which belong to the caller, A
    itself, and reshapes of either. If the sums start from a tensor, further ones (`alone_names`)
    catch tensors that nothing else reads; of others the kernel gets a copy, since IREE copies
    neither arguments (iree-org/iree#16168) nor tensors that the op reads twice.
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
    """Return the sequences that match ops whose added tensor must not be overwritten."""
    return [f"{matcher}_{why}" for why in ("given", "reshaped", "self")]


def alone_names(matcher: str) -> list[str]:
    """Return the sequences that match ops whose initial tensor nothing else reads."""
    return [f"{matcher}_alone{reshapes}" for reshapes in range(MOST_RESHAPES + 1)]


def alone_text() -> str:
    """Return a check that a value has one use, in a function that returns only op results."""
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
    """Return the sequence that leaves matched ops as they are."""
    return f"""
  transform.named_sequence @{LEAVE}(%ins: {_VALUES} {{transform.readonly}}, \
%out: {_VALUES} {{transform.readonly}}) {{
    transform.yield
  }}"""


def once_text() -> str:
    """Return a check that an op runs once: an accumulating kernel must not run in a loop."""
    return f"""
  transform.named_sequence @{ONCE}(%op: {_HANDLE} {{transform.readonly}}) {{
    %none = transform.param.constant 0 : i64 -> {_COUNT}
    %around = transform.get_parent_op %op : ({_HANDLE}) -> {_HANDLE}
    transform.match.operation_name %around ["util.func"] : {_HANDLE}\
{matched_text("jumps", JUMPS, "%around")}\
{equal_text("found", "%jumps", "%none")}
    transform.yield
  }}"""


def matched_text(name: str, ops: Sequence[str], around: str) -> str:
    """Return a line that names the ops of some kinds inside another op."""
    listed = ", ".join(f'"{op}"' for op in ops)
    return f"""
    %{name} = transform.structured.match ops{{[{listed}]}} in {around} \
: ({_HANDLE}) -> {_HANDLE}"""


def equal_text(name: str, handle: str, count: str) -> str:
    """Return lines that check the number of ops behind a handle."""
    return f"""
    %{name} = transform.num_associations {handle} : ({_HANDLE}) -> {_COUNT}
    transform.match.param.cmpi eq %{name}, {count} : {_COUNT}"""


def matcher_of(name: str, pattern: Pattern, checks: Sequence[str]) -> str:
    """Return a sequence that matches the ops of a pattern for which some checks hold."""
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
    """Return a sequence that replaces matched ops by a call."""
    return f"""
  transform.named_sequence @{name}_use{suffix}(%ins: {_VALUES} {{transform.readonly}}, \
%out: {_VALUES} {{transform.readonly}}) {{
    %root = transform.get_defining_op %out : ({_VALUES}) -> {_HANDLE}
    %module = transform.util.get_nearest_symbol_table %root : ({_HANDLE}) -> {_HANDLE}
    %code = transform.util.import_symbol @{code}_executable into %module if undefined \
: ({_HANDLE}) -> {_HANDLE}
    %call = transform.util.import_symbol @{name}_call{suffix} into %module if undefined \
: ({_HANDLE}) -> {_HANDLE}
    transform.util.cast_and_call %call(%ins) -> %out after %root {{
      transform.type_conversion.tensor.cast_shape_dynamic_dims
    }} : ({_HANDLE}, {_VALUES}, {_VALUES}, {_HANDLE}) -> {_HANDLE}
    transform.yield
  }}"""


def relu_text(relu: Limit, element: str) -> str:
    """Return the function of a relu, and the sequences that replace its ops by a call."""
    body = "\n".join(relu.body(element))
    return scalar_text(relu.symbol(element), relu.signature(element), body, relu.result, element)


def inner_text(inner: Inner) -> str:
    """Return what moves the constants of an op of a body in front of it."""
    return scalar_text(inner.name, inner.signature, inner.text, inner.result, inner.type)


def scalar_text(name: str, signature: str, body: str, result: str, element: str) -> str:
    """Return a function of scalars, and the sequences that replace its ops by a call."""
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
    """Return lines that follow a path of operands from the root, and the last handle."""
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
    """Check that `makers` made the value at the end of a path, behind some reshapes."""
    lines, op = walk((*path, *[0] * reshapes), "given")
    names, of = (", ".join(f'"{name}"' for name in one) for one in (SAME_BYTES, makers))
    between = "".join(
        f"\n    transform.match.operation_name %given_{at} [{names}] : {_HANDLE}"
        for at in range(len(path) - 1, len(path) + reshapes - 1)
    )
    return f"{lines}{between}\n    transform.match.operation_name {op} [{of}] : {_HANDLE}"


def _is_read_too(pattern: Pattern) -> str:
    """Check that one op makes both A and the added tensor."""
    assert pattern.added is not None
    a, of_a = walk(pattern.read, "read")
    c, of_c = walk(pattern.added, "added")
    return f"""{a}{c}
    %makers = transform.merge_handles deduplicate {of_a}, {of_c} : {_HANDLE}
    %one = transform.param.constant 1 : i64 -> {_COUNT}\
{equal_text("same", "%makers", "%one")}"""


def _is_alone(path: tuple[int, ...], reshapes: int) -> str:
    """Check that a value has no other use, and neither have those it is reshaped from."""
    return _is_made_by((ARGUMENT, *MAKERS), path, reshapes) + "".join(
        f"\n    transform.include @{ALONE} failures(propagate) (%given_{at}) : ({_HANDLE}) -> ()"
        for at in range(len(path) - 1, len(path) + reshapes)
    )


ACCUMULATORS = ("f32", "f64", "i32")
COPIED = "_copied"
"""The suffix of a call of a kernel on a copy of the tensor that it adds to."""
FLAG = "--iree-preprocessing-transform-spec-filename"
_STEP = """
    %functions{step} = transform.structured.match ops{{["util.func"]}} in %module \
: (!transform.any_op) -> !transform.any_op
    transform.foreach %functions{step} : !transform.any_op {{
    ^bb0(%function: !transform.any_op):
      transform.foreach_match in %function
        {pairs} : (!transform.any_op) -> !transform.any_op
    }}
    transform.apply_dce to %module : !transform.any_op"""
_INLINE = """
    %module = transform.apply_registered_pass "inline" with options = {"default-pipeline" = ""} \
to %given : (!transform.any_op) -> !transform.any_op"""
_CANCEL = """
    %cancelled = transform.apply_registered_pass "canonicalize" to %inlined \
: (!transform.any_op) -> !transform.any_op
    transform.apply_cse to %cancelled : !transform.any_op"""
"""Cancels transpositions with their inverses, and merges equal ones."""
_CSE = """
    transform.apply_cse to %module : !transform.any_op"""
_PADS = """
    %pads = transform.structured.match ops{["tensor.pad"]} in %module \
: (!transform.any_op) -> !transform.any_op
    %slices = transform.structured.rewrite_in_destination_passing_style %pads \
: (!transform.any_op) -> !transform.any_op"""
"""The matcher does not see what the body of `tensor.pad` captures; a slice in zeros it does."""


Cuts = Mapping[str, Sequence[Pattern]]
"""Patterns extracted from models, by the canonical strings of their problems."""


def library_text(entries: Sequence[LibraryEntry], target: Target) -> str:
    """Return the file for `iree-compile --iree-preprocessing-transform-spec-filename=`.

    Raises:
        UnsupportedError: an operation has no kernel.
        ScheduleError: a schedule cannot be applied to its problem.
        LoweringError: the target lacks an instruction, or this machine is not x86-64.
    """
    return text_of([compiled(entry, target) for entry in entries], target)


def text_of(
    kernels: Sequence[CompiledEntry],
    target: Target,
    notes: Sequence[str] = (),
    cuts: Cuts = MappingProxyType({}),
) -> str:
    """Return the library of compiled kernels, with notes in its header and extracted patterns."""
    calls = list({(kernel.name, kernel.found.canonical): kernel for kernel in kernels}.values())
    calls.sort(key=lambda kernel: (-_rank(kernel.found), kernel.name, kernel.found.canonical))
    unique = list({kernel.name: kernel for kernel in calls}.values())
    uses = [use for kernel, name in _named(calls) for use in _uses(kernel, name, cuts)]
    bodies = "".join(map(executable_text, unique))
    codes = {kernel.name: kernel.made.bitcode for kernel in unique}
    scalars = [
        *(relu_text(relu, element) for relu, element in _relus(uses)),
        *map(inner_text, _inner_ops(uses)),
    ]
    return (
        f"{_head(calls, target, notes)}{aliases_text(codes)}"
        f"module attributes {{transform.with_named_sequence}} {{\n{bodies}{_calls(uses)}"
        f"{''.join(scalars)}{_main(uses)}}}\n"
    )


def _named(kernels: Sequence[CompiledEntry]) -> Iterator[tuple[CompiledEntry, str]]:
    """Yield kernels with names for their calls, numbered if a kernel replaces several problems."""
    counts: Counter[str] = Counter()
    for kernel in kernels:
        number = counts[kernel.name]
        counts[kernel.name] += 1
        yield kernel, f"{kernel.name}_for{number}" if number else kernel.name


def fused(problem: Problem) -> int:
    """Return the number of steps that a problem has besides its contraction."""
    ends = (problem.epilogue != "none") + (problem.ceiling is not None) + bool(problem.out)
    return problem.has_bias + problem.add + ends


def _rank(problem: Problem) -> int:
    """Rank problems for matching: more steps first, constant weights before variable ones."""
    return 2 * fused(problem) + problem.has_constant_weights


def _head(kernels: Sequence[CompiledEntry], target: Target, notes: Sequence[str]) -> str:
    features = sorted({name for kernel in kernels for name in kernel.made.features})
    lines = [
        "Tuned kernels for IREE, made by Tilewise:",
        f"  iree-compile {FLAG}=FILE ...",
        f"Tuned for {target.canonical}. The processor that runs them has to have",
        f"  {', '.join(features) or 'x86-64, and no extension of it'}",
        *map(one_line, notes),
    ]
    for kernel in kernels:
        laid = f" as {kernel.problem.canonical}" if kernel.found != kernel.problem else ""
        lines.append(f"{kernel.found.canonical}{laid}: {kernel.name}")
    return "".join(f"// {line}\n" for line in lines)


@dataclass(frozen=True)
class _Use:
    """A pattern, and which of its kernel's functions is called where it matches."""

    kernel: CompiledEntry
    name: str
    pattern: Pattern
    number: int
    suffix: str

    @property
    def level(self) -> int:
        """The number of steps that the pattern has besides its contraction."""
        return fused(self.kernel.found) + (self.pattern.added is not None)

    @property
    def is_on_the_left(self) -> bool:
        """Whether the added tensor is on the right of the sums; sums on the right match first."""
        added = self.pattern.added
        return added is not None and self.pattern.weights < added

    @property
    def pairs(self) -> tuple[str, ...]:
        """The matchers and actions of `transform.foreach_match`, which takes the first match."""
        matcher = f"@{self.name}_is{self.number}"
        use = f"{matcher} -> @{self.name}_use{self.suffix}"
        if self.pattern.init is not None:
            alone = (use.replace(matcher, one) for one in alone_names(matcher))
            return (*alone, f"{use}{COPIED}")
        if self.pattern.added is None:
            return (use,)
        return (*(f"{one} -> @{LEAVE}" for one in left_names(matcher)), use)


def _uses(kernel: CompiledEntry, name: str, cuts: Cuts) -> list[_Use]:
    own = cuts.get(kernel.found.canonical, ())
    found = {one.text: one for one in (*patterns(kernel.found), *own)}
    numbers: dict[tuple[tuple[str, tuple[int, ...]], ...], str] = {}
    for one in found.values():
        numbers.setdefault(one.signature, str(len(numbers) or ""))
    return [
        _Use(kernel, name, one, number, numbers[one.signature])
        for number, one in enumerate(found.values())
    ]


def _calls(uses: Sequence[_Use]) -> str:
    """Return the functions that replace ops, and the sequences that insert them."""
    called = {(use.name, use.suffix): use for use in uses}.values()
    copying = {(use.name, use.suffix): use for use in uses if use.pattern.init is not None}.values()
    return "".join(
        [
            *(call_text(use.kernel, f"{use.name}_call{use.suffix}", use.pattern) for use in called),
            *(
                call_text(
                    use.kernel, f"{use.name}_call{use.suffix}{COPIED}", use.pattern, copies=True
                )
                for use in copying
            ),
            *(replacer_text(use.kernel.name, use.name, f"{use.suffix}{COPIED}") for use in copying),
            *([alone_text()] if copying else []),
            *(matcher_text(use.kernel, f"{use.name}_is{use.number}", use.pattern) for use in uses),
            *(replacer_text(use.kernel.name, use.name, use.suffix) for use in called),
            *([once_text()] if any(use.kernel.found.accumulates for use in uses) else []),
            *([leave_text()] if any(use.pattern.added is not None for use in uses) else []),
        ]
    )


def _inner_ops(uses: Sequence[_Use]) -> list[Inner]:
    """Return the ops of bodies whose constants are moved, each once."""
    return list({inner.name: inner for use in uses for inner in use.pattern.inner}.values())


def _relus(uses: Sequence[_Use]) -> list[tuple[Limit, str]]:
    """Return the relus of the patterns' sums."""
    problems = [use.kernel.found for use in uses if use.kernel.found.has_relu]
    elements = dict.fromkeys(problem.element.accumulator for problem in problems)
    return [(relu, element) for element in elements for relu in limits_of(element)]


def prelude_text() -> str:
    """Return the part of a library that prepares a module for matching."""
    relus = [(relu, element) for element in ACCUMULATORS for relu in limits_of(element)]
    given, before = _before([relu.symbol(element) for relu, element in relus], has_pads=True)
    return f"""module attributes {{transform.with_named_sequence}} {{
{"".join(relu_text(relu, element) for relu, element in relus)}
  transform.named_sequence @__transform_main({given}: !transform.any_op {{transform.consumed}}) {{\
{before}
    transform.yield
  }}
}}
"""


def _before(names: Sequence[str], *, has_pads: bool) -> tuple[str, str]:
    """Return the module's first handle, and the steps that make its ops easier to match."""
    steps = (_PADS if has_pads else "") + _CSE
    if not names:
        return "%module", steps
    pairs = ",\n        ".join(f"@{name}_is -> @{name}_use" for name in names)
    steps += _STEP.format(step="_relu", pairs=pairs)
    return "%given", steps.replace("%module", "%given") + _INLINE


def _main(uses: Sequence[_Use]) -> str:
    """Return the main sequence, which matches larger patterns first, in steps of their own."""
    has_pads = any("tensor.insert_slice" in use.pattern.text for use in uses)
    scalars = [relu.symbol(element) for relu, element in _relus(uses)]
    scalars += [inner.name for inner in _inner_ops(uses)]
    given, before = _before(scalars, has_pads=has_pads)
    is_laid = any(use.kernel.found != use.kernel.problem for use in uses)
    steps, after = "", _CANCEL if is_laid else ""
    levels = sorted({use.level for use in uses}, reverse=True)
    for step, level in enumerate(levels):
        found = [use for use in uses if use.level == level]
        found.sort(key=lambda use: (use.is_on_the_left, -use.pattern.size))
        pairs = ",\n        ".join(pair for use in found for pair in use.pairs)
        steps += _STEP.format(step=step, pairs=pairs)
    return f"""
  transform.named_sequence @__transform_main({given}: !transform.any_op {{transform.consumed}}) {{\
{before}{steps}
    %inlined = transform.apply_registered_pass "inline" to %module \
: (!transform.any_op) -> !transform.any_op{after}
    transform.yield
  }}
"""
