"""A library: the transform script that replaces ops by tuned kernels before IREE's own passes."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from textwrap import indent
from types import MappingProxyType

from tilewise.kernels.dispatches.executable import (
    CompiledEntry,
    LibraryEntry,
    aliases_text,
    call_text,
    compiled,
    executable_text,
    template,
)
from tilewise.kernels.dispatches.patterns.any_size import range_patterns
from tilewise.kernels.dispatches.patterns.graph import Inner
from tilewise.kernels.dispatches.patterns.pattern import Pattern, patterns
from tilewise.kernels.dispatches.patterns.spelling import limits_of
from tilewise.kernels.mlir.frontend.graph import ARGUMENT, SAME_BYTES
from tilewise.kernels.mlir.transform.module import MODULE
from tilewise.kernels.problem import Problem, ProblemRange
from tilewise.kernels.quoting import one_line
from tilewise.kernels.target.model import Target

CONSTANTS = ("arith.constant", "util.global.load", "flow.tensor.constant")
"""Ops whose value is the same in every run; mutable globals are rare."""

MAKERS = ("util.call", "linalg.generic", "linalg.fill", "linalg.matmul", "linalg.batch_matmul",
          "linalg.conv_2d_nhwc_hwcf", "linalg.conv_2d_nchw_fchw")  # fmt: skip
"""Ops that make most of the tensors that sums start from; the results of others are copied."""
MOST_RESHAPES = 2
"""Between an argument and an op: canonicalisation leaves no longer chain."""

_HANDLE = "!transform.any_op"


def matcher_text(kernel: CompiledEntry, name: str, pattern: Pattern) -> list[str]:
    """Return matchers of one pattern, where nothing else reads its intermediate values.

    If the kernel overwrites a tensor that the pattern adds, an op must have made it. Further
    sequences (`left_names`) catch what is left to IREE: arguments, which belong to the caller, A
    itself, and reshapes of either. If the sums start from a tensor, further ones (`alone_names`)
    catch tensors that nothing else reads; of others the kernel gets a copy, since IREE copies
    neither arguments (iree-org/iree#16168) nor tensors that the op reads twice.
    """
    walks = [walk(path, f"between{at}") for at, path in enumerate(pattern.once)]
    checks = [lines + template("used_once", op=op) for lines, op in walks]
    if kernel.found.accumulates:
        checks.append(_include("once", "%root"))
    if kernel.found.has_constant_weights:
        checks.append(_is_constant(pattern))
    more: list[str] = []
    if pattern.added is not None and kernel.found.accumulates:
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
    return [matcher_of(name, pattern, checks), *more]


def left_names(matcher: str) -> list[str]:
    """Return the sequences that match ops whose added tensor must not be overwritten."""
    return [f"{matcher}_{why}" for why in ("given", "reshaped", "self")]


def alone_names(matcher: str) -> list[str]:
    """Return the sequences that match ops whose initial tensor nothing else reads."""
    return [f"{matcher}_alone{reshapes}" for reshapes in range(MOST_RESHAPES + 1)]


def matcher_of(name: str, pattern: Pattern, checks: Sequence[str]) -> str:
    """Return a sequence that matches the ops of a pattern for which some checks hold."""
    operands = ", ".join(f"{value.name}: {value.type}" for value in pattern.operands)
    return template(
        "matcher", name=name, operands=operands, checks="".join(checks),
        pattern="\n".join((*pattern.sizes, pattern.text)),
    )  # fmt: skip


def replacer_text(code: str, name: str, suffix: str = "") -> str:
    """Return a sequence that replaces matched ops by a call."""
    symbols = {"code": f"{code}_executable", "call": f"{name}_call{suffix}"}
    conversion = " { transform.type_conversion.tensor.cast_shape_dynamic_dims }"
    return _replacer(f"{name}_use{suffix}", symbols, conversion)


def _replacer(name: str, symbols: Mapping[str, str], conversion: str = "") -> str:
    imports = (template("import", handle=handle, symbol=symbol)
               for handle, symbol in symbols.items())  # fmt: skip
    return template("replacer", name=name, imports="".join(imports), conversion=conversion)


def scalar_text(op: Inner) -> list[str]:
    """Return an op of a body as a function, and the sequences that replace it by a call."""
    name, signature, body = op.name, op.signature, op.text
    return [
        template("scalar", name=name, signature=signature, body=body, result=op.result,
                 element=op.type),
        template("matcher", name=f"{name}_is", operands=signature, pattern=body, checks=""),
        _replacer(f"{name}_use", {"call": name}),
    ]  # fmt: skip


def walk(path: tuple[int, ...], name: str) -> tuple[str, str]:
    """Return lines that follow a path of operands from the root, and the last handle."""
    handles = ["%root", *(f"%{name}_{i}" for i in range(len(path)))]
    lines = [
        f"{made} = transform.get_producer_of_operand {at}[{step}] : ({_HANDLE}) -> {_HANDLE}\n"
        for (at, made), step in zip(pairwise(handles), path, strict=True)
    ]
    return "".join(lines), handles[-1]


def _include(sequence: str, handle: str) -> str:
    return (f"transform.include @tilewise_{sequence} failures(propagate) ({handle}) : "
            f"({_HANDLE}) -> ()\n")  # fmt: skip


def _has_name(handle: str, ops: Sequence[str]) -> str:
    named = ", ".join(f'"{op}"' for op in ops)
    return f"transform.match.operation_name {handle} [{named}] : {_HANDLE}\n"


def _is_constant(pattern: Pattern) -> str:
    lines, op = walk(pattern.weights, "weights")
    return lines + _has_name(op, [*CONSTANTS, *([pattern.constant] if pattern.constant else [])])


def _is_made_by(makers: Sequence[str], path: tuple[int, ...], reshapes: int) -> str:
    """Check that `makers` made the value at the end of a path, behind some reshapes."""
    lines, op = walk((*path, *[0] * reshapes), "given")
    between = (_has_name(f"%given_{at}", SAME_BYTES)
               for at in range(len(path) - 1, len(path) + reshapes - 1))  # fmt: skip
    return "".join([lines, *between, _has_name(op, makers)])


def _is_read_too(pattern: Pattern) -> str:
    """Check that one op makes both A and the added tensor."""
    assert pattern.added is not None
    (a, of_a), (c, of_c) = walk(pattern.read, "read"), walk(pattern.added, "added")
    return a + c + template("is_read_too", a=of_a, added=of_c)


def _is_alone(path: tuple[int, ...], reshapes: int) -> str:
    """Check that a value has no other use, and neither have those it is reshaped from."""
    return _is_made_by((ARGUMENT, *MAKERS), path, reshapes) + "".join(
        _include("alone", f"%given_{at}") for at in range(len(path) - 1, len(path) + reshapes)
    )


LIMITED = ("f32", "f64", "i32", "bf16", "f16")
"""Types of sums, and of results that are rounded before relu."""
COPIED = "_copied"
"""The suffix of a call of a kernel on a copy of the tensor that it adds to."""
LEAVE = "tilewise_leave"
FLAG = "--iree-preprocessing-transform-spec-filename"
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
    calls = list({(kernel.name, kernel.canonical): kernel for kernel in kernels}.values())
    # More steps are matched first, and constant weights before variable ones.
    calls.sort(key=lambda kernel: (-fused(kernel.found), not kernel.found.has_constant_weights,
                                   isinstance(kernel.replaces, ProblemRange), kernel.name,
                                   kernel.canonical))  # fmt: skip
    unique = list({kernel.name: kernel for kernel in calls}.values())
    uses = [use for kernel, name in _named(calls) for use in _uses(kernel, name, cuts)]
    codes = {kernel.name: kernel.made.bitcode for kernel in unique}
    sequences = [*_calls(uses), *map(template, ("alone", "once", "leave")), *_main(uses)]
    head = f"{_head(calls, target, notes)}{aliases_text(codes)}"
    return f"{head}{module_of([*map(executable_text, unique), *sequences])}"


def module_of(parts: Sequence[str]) -> str:
    """Return a transform script of functions, executables and sequences."""
    return f"{MODULE}{indent(''.join(parts), '  ')}}}\n"


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
        lines.append(f"{kernel.canonical}{laid}: {kernel.name}")
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
        is_written_over = self.pattern.added is not None and self.kernel.found.accumulates
        return fused(self.kernel.found) + is_written_over

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
        if self.pattern.added is None or not self.kernel.found.accumulates:
            return (use,)
        return (*(f"{one} -> @{LEAVE}" for one in left_names(matcher)), use)


def _uses(kernel: CompiledEntry, name: str, cuts: Cuts) -> list[_Use]:
    own, problem = cuts.get(kernel.canonical, ()), kernel.replaces
    known = range_patterns(problem) if isinstance(problem, ProblemRange) else patterns(problem)
    found = {one.text: one for one in (*known, *own)}
    numbers: dict[tuple[tuple[str, tuple[int, ...]], ...], str] = {}
    for one in found.values():
        numbers.setdefault(one.signature, str(len(numbers) or ""))
    return [
        _Use(kernel, name, one, number, numbers[one.signature])
        for number, one in enumerate(found.values())
    ]


def _calls(uses: Sequence[_Use]) -> Iterator[str]:
    """Yield the functions that replace ops, and the sequences that insert them."""
    for more in ("", COPIED):
        found = (use for use in uses if not more or use.pattern.init is not None)
        for use in {(use.name, use.suffix): use for use in found}.values():
            name = f"{use.name}_call{use.suffix}{more}"
            yield call_text(use.kernel, name, use.pattern, copies=bool(more))
            yield replacer_text(use.kernel.name, use.name, f"{use.suffix}{more}")
    for use in uses:
        yield from matcher_text(use.kernel, f"{use.name}_is{use.number}", use.pattern)


def prelude_text() -> str:
    """Return the part of a library that prepares a module for matching."""
    return module_of(_started(_relus(LIMITED), [], has_pads=True))


def _relus(elements: Iterable[str]) -> list[Inner]:
    """Return the limits of some types, each once, as ops of bodies."""
    kinds = dict.fromkeys(elements)
    return [limit.inner(element) for element in kinds for limit in limits_of(element)]


def _main(uses: Sequence[_Use]) -> list[str]:
    """Return the main sequence, which matches larger patterns first, in steps of their own."""
    problems = [use.kernel.found for use in uses]
    limited = [one for one in problems if one.has_relu]
    scalars = _relus(of for one in limited for of in (one.element.accumulator, one.out) if of)
    scalars += {inner.name: inner for use in uses for inner in use.pattern.inner}.values()
    steps = []
    for step, level in enumerate(sorted({use.level for use in uses}, reverse=True)):
        found = [use for use in uses if use.level == level]
        found.sort(key=lambda use: (use.is_on_the_left, -use.pattern.size))
        steps.append(_step(str(step), "module", [pair for use in found for pair in use.pairs]))
    steps.append(template("inline_calls"))
    if any(use.kernel.found != use.kernel.problem for use in uses):
        steps.append(template("cancel"))
    has_pads = any("tensor.insert_slice" in use.pattern.text for use in uses)
    return _started(scalars, steps, has_pads=has_pads)


def _started(scalars: Sequence[Inner], steps: Sequence[str], *, has_pads: bool) -> list[str]:
    """Return the main sequence with steps before others that make ops easier to match."""
    given = "given" if scalars else "module"
    before = [template("pads", module=given)] if has_pads else []
    before.append(f"transform.apply_cse to %{given} : {_HANDLE}\n")
    if scalars:
        pairs = [f"@{one.name}_is -> @{one.name}_use" for one in scalars]
        before += [_step("_scalars", given, pairs), template("inline_scalars")]
    texts = [text for one in scalars for text in scalar_text(one)]
    return [*texts, template("main", given=given, steps="".join([*before, *steps]))]


def _step(name: str, module: str, pairs: Sequence[str]) -> str:
    return template("step", step=name, module=module, pairs=",\n".join(pairs))
