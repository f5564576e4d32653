"""A library: what is in front of IREE's own compiler, and replaces ops by tuned kernels."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from tilewise.kernels.dispatches.entry import Compiled, Entry, compiled
from tilewise.kernels.dispatches.executable import aliases_text, call_text, executable_text
from tilewise.kernels.dispatches.passes.code import CompiledPass
from tilewise.kernels.dispatches.passes.text import (
    counts_text,
    inner_text,
    pass_call,
    pass_executable,
    pass_pairs,
    pass_sequences,
)
from tilewise.kernels.dispatches.patterns.inner import Inner
from tilewise.kernels.dispatches.patterns.pattern import Pattern, patterns
from tilewise.kernels.dispatches.patterns.relu import Limit, limits_of
from tilewise.kernels.dispatches.replacement import (
    LEAVE,
    alone_names,
    alone_text,
    leave_text,
    left_names,
    matcher_text,
    once_text,
    relu_text,
    replacer_text,
)
from tilewise.kernels.problem import Problem
from tilewise.kernels.quoting import one_line
from tilewise.kernels.target.model import Target

ACCUMULATORS = ("f32", "f64", "i32")
COPIED = "_copied"
"""The suffix of what calls a kernel with a copy of the tensor that it adds to."""
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
"""Transpositions that follow their inverse go, and of several of one value all but one."""
_CSE = """
    transform.apply_cse to %module : !transform.any_op"""
_PADS = """
    %pads = transform.structured.match ops{["tensor.pad"]} in %module \
: (!transform.any_op) -> !transform.any_op
    %slices = transform.structured.rewrite_in_destination_passing_style %pads \
: (!transform.any_op) -> !transform.any_op"""
"""The matcher does not see what the body of `tensor.pad` captures; a slice in zeros it does."""


Cuts = Mapping[str, Sequence[Pattern]]
"""Further patterns of problems, by the problems' strings."""


def library_text(
    entries: Sequence[Entry],
    target: Target,
    notes: Sequence[str] = (),
    cuts: Cuts = MappingProxyType({}),
) -> str:
    """The file for `iree-compile --iree-preprocessing-transform-spec-filename=`.

    Args:
        entries: problems with their schedules; the order does not matter.
        target: the machine that they are for.
        notes: lines for whoever reads the file.
        cuts: patterns that a model's ops have, beside the known spellings.

    Raises:
        UnsupportedError: an operation is not one of ours.
        ScheduleError: a schedule cannot be applied to its problem.
        LoweringError: a schedule asks for what the target has not, or this is no x86-64.
    """
    return text_of([compiled(entry, target) for entry in entries], target, notes, cuts)


def text_of(
    kernels: Sequence[Compiled],
    target: Target,
    notes: Sequence[str] = (),
    cuts: Cuts = MappingProxyType({}),
    passes: Sequence[CompiledPass] = (),
) -> str:
    """As `library_text`, of kernels that are compiled already, and of passes over rows."""
    calls = list({(kernel.name, kernel.found.canonical): kernel for kernel in kernels}.values())
    calls.sort(key=lambda kernel: (-_rank(kernel.found), kernel.name, kernel.found.canonical))
    unique = list({kernel.name: kernel for kernel in calls}.values())
    uses = [use for kernel, name in _named(calls) for use in _uses(kernel, name, cuts)]
    bodies = "".join([*map(executable_text, unique), *map(pass_executable, passes)])
    codes = {kernel.name: kernel.made.bitcode for kernel in unique}
    codes |= {one.name: one.bitcode for one in passes}
    scalars = [
        *(relu_text(relu, element) for relu, element in _relus(uses, passes)),
        *map(inner_text, _inner_ops(uses, passes)),
    ]
    return (
        f"{_head(calls, target, notes, passes)}{aliases_text(codes)}"
        f"module attributes {{transform.with_named_sequence}} {{\n{bodies}{_calls(uses)}"
        f"{_of_passes(passes)}{''.join(scalars)}{_main(uses, passes)}}}\n"
    )


def _named(kernels: Sequence[Compiled]) -> Iterator[tuple[Compiled, str]]:
    """Kernels with what the functions that call them are named by: one may stand for several ops'
    problems, of which all but the first have a number.
    """
    counts: Counter[str] = Counter()
    for kernel in kernels:
        number = counts[kernel.name]
        counts[kernel.name] += 1
        yield kernel, f"{kernel.name}_for{number}" if number else kernel.name


def fused(problem: Problem) -> int:
    """How many steps a problem has besides its contraction."""
    return problem.has_bias + problem.has_relu + (problem.ceiling is not None)


def _rank(problem: Problem) -> int:
    """What is looked for first: more steps, and constant weights before any weights."""
    return 2 * fused(problem) + problem.has_constant_weights


def _head(
    kernels: Sequence[Compiled],
    target: Target,
    notes: Sequence[str],
    passes: Sequence[CompiledPass],
) -> str:
    used = [*(kernel.made.features for kernel in kernels), *(one.features for one in passes)]
    features = sorted({name for names in used for name in names})
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
    lines += [f"{one.found.label}: {one.name}" for one in passes]
    return "".join(f"// {line}\n" for line in lines)


@dataclass(frozen=True)
class _Use:
    """A pattern, and which of its kernel's functions is called where it is found.

    Attributes:
        kernel: that computes it.
        name: what its functions and sequences begin with.
        pattern: that is looked for.
        number: of the pattern among those of the name.
        suffix: of the function that is called.
    """

    kernel: Compiled
    name: str
    pattern: Pattern
    number: int
    suffix: str

    @property
    def level(self) -> int:
        """How many steps the pattern has besides its contraction."""
        return fused(self.kernel.found) + (self.pattern.added is not None)

    @property
    def is_on_the_left(self) -> bool:
        """Whether a tensor is added on the right of the sums; they leave it to sums there."""
        added = self.pattern.added
        return added is not None and self.pattern.weights < added

    @property
    def pairs(self) -> tuple[str, ...]:
        """As `transform.foreach_match` takes them: the first that fits is the one."""
        matcher = f"@{self.name}_is{self.number}"
        use = f"{matcher} -> @{self.name}_use{self.suffix}"
        if self.pattern.init is not None:
            alone = (use.replace(matcher, one) for one in alone_names(matcher))
            return (*alone, f"{use}{COPIED}")
        if self.pattern.added is None:
            return (use,)
        return (*(f"{one} -> @{LEAVE}" for one in left_names(matcher)), use)


def _uses(kernel: Compiled, name: str, cuts: Cuts) -> list[_Use]:
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
    """The functions that take the place of ops, and the sequences that put them there."""
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


def _of_passes(passes: Sequence[CompiledPass]) -> str:
    """As `_calls`, of passes over rows."""
    return "".join(
        [
            *map(pass_call, passes),
            counts_text(passes),
            *map(pass_sequences, passes),
        ]
    )


def _inner_ops(uses: Sequence[_Use], passes: Sequence[CompiledPass]) -> list[Inner]:
    """The ops of bodies whose constants are moved there, each once."""
    patterns = [*(use.pattern.inner for use in uses), *(one.found.inner for one in passes)]
    return list({inner.name: inner for moved in patterns for inner in moved}.values())


def _relus(uses: Sequence[_Use], passes: Sequence[CompiledPass]) -> list[tuple[Limit, str]]:
    """The relus of the patterns' types; passes are f32 inside, and were cut where all relus are."""
    elements = {use.pattern.result.element: None for use in uses if use.kernel.found.has_relu}
    elements |= {"f32": None} if passes else {}
    return [(relu, element) for element in elements for relu in limits_of(element)]


def prelude_text() -> str:
    """What a library does to a module before it looks at it, alone."""
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
    """The handle of the module at first, and the steps that make its ops easier to find.

    Args:
        names: of functions of scalars that ops of bodies become.
        has_pads: whether padding is looked for.
    """
    steps = (_PADS if has_pads else "") + _CSE
    if not names:
        return "%module", steps
    pairs = ",\n        ".join(f"@{name}_is -> @{name}_use" for name in names)
    steps += _STEP.format(step="_relu", pairs=pairs)
    return "%given", steps.replace("%module", "%given") + _INLINE


def _main(uses: Sequence[_Use], passes: Sequence[CompiledPass]) -> str:
    """Ops that mean more are looked for first, in steps of their own; passes over rows last.

    Of passes the longest ones come first: a short one may be a part of them.
    """
    has_pads = any("tensor.insert_slice" in use.pattern.text for use in uses)
    scalars = [relu.symbol(element) for relu, element in _relus(uses, passes)]
    scalars += [inner.name for inner in _inner_ops(uses, passes)]
    given, before = _before(scalars, has_pads=has_pads)
    is_laid = any(use.kernel.found != use.kernel.problem for use in uses)
    steps, after = "", _CANCEL if is_laid else ""
    levels = sorted({use.level for use in uses}, reverse=True)
    for step, level in enumerate(levels):
        found = [use for use in uses if use.level == level]
        found.sort(key=lambda use: (use.is_on_the_left, -use.pattern.size))
        pairs = ",\n        ".join(pair for use in found for pair in use.pairs)
        steps += _STEP.format(step=step, pairs=pairs)
    for size in sorted({one.found.pattern.size for one in passes}, reverse=True):
        longest = [one for one in passes if one.found.pattern.size == size]
        pairs = ",\n        ".join(pair for one in longest for pair in pass_pairs(one))
        steps += _STEP.format(step=f"_rows{size}", pairs=pairs)
    return f"""
  transform.named_sequence @__transform_main({given}: !transform.any_op {{transform.consumed}}) {{\
{before}{steps}
    %inlined = transform.apply_registered_pass "inline" to %module \
: (!transform.any_op) -> !transform.any_op{after}
    transform.yield
  }}
"""
