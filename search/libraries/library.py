"""The library of several problems: kernels that make IREE faster, and reasons for the others."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any

from tilewise.kernels.dispatches.executable import LibraryEntry, compiled
from tilewise.kernels.dispatches.library import Cuts, text_of
from tilewise.kernels.dispatches.patterns.any_size import range_patterns
from tilewise.kernels.dispatches.patterns.pattern import Pattern
from tilewise.kernels.errors import CompilerAbsentError, KernelsError, ProofError
from tilewise.kernels.problem import Problem, ProblemRange, parse_problem
from tilewise.kernels.range_schedule import RangeSchedule
from tilewise.kernels.target import Target, resolve
from tilewise.search.libraries.gain import BUDGET_S, Gain, measured, measured_as_found
from tilewise.search.peers import missing_packages
from tilewise.search.peers.iree import NAME


@dataclass(frozen=True)
class KernelRow:
    """A problem, or a range of problems, and the gain of its kernel inside IREE."""

    problem: Problem | ProblemRange
    gain: Gain
    found: Problem | ProblemRange

    def to_json(self) -> dict[str, Any]:
        """Return the object that `tilewise script --flavor iree --json` prints."""
        gain = self.gain
        stands = {} if self.found == self.problem else {"for": str(self.found)}
        return {
            "problem": self.problem.canonical,
            **stands,
            "served": gain.is_served,
            "matched": gain.matched,
            "max_error": gain.max_error,
            "tolerance": gain.tolerance,
            "time_us": gain.library_us,
            "own_time_us": gain.own_us,
            "iree_time_us": dict(gain.alone_us or {}),
            "ratio": gain.ratio,
            "reason": gain.reason,
        }


@dataclass(frozen=True)
class Judged:
    """The gain of a kernel for the ops of one problem.

    `gain` is of the problem's own module, or of a model's best op if that decides. `patterns` are
    those of the ops that use it; `reasons` say why others do not.
    """

    gain: Gain
    patterns: tuple[Pattern, ...] = ()
    reasons: tuple[str, ...] = ()


def judged(
    entry: LibraryEntry, patterns: Sequence[Pattern], target: str, budget_s: float = BUDGET_S
) -> Judged:
    """Measure a kernel inside IREE, and for some ops in the form that a model has them.

    Those are ops with permuted operands, and all ops if IREE alone is faster on the problem's own
    module, since it may be slower on the model's form.

    Raises RunnerError if no child could be started, KernelsError if compiling fails.
    """
    plain = tuple(one for one in patterns if not any(one.turns))
    gain = None
    if plain or not patterns:
        if isinstance(entry.schedule, RangeSchedule):
            own, *_ = range_patterns(entry.schedule.problems)
            gain = measured_as_found(entry, own, target, budget_s)
        else:
            gain = measured(entry.problem, entry.schedule.to_json(), target, budget_s)
        if gain.failure:
            return Judged(gain)
        if gain.is_served or not patterns:
            patterns = [one for one in patterns if any(one.turns)]
        else:
            plain, gain = (), None
    found = [(one, measured_as_found(entry, one, target, budget_s)) for one in patterns]
    kept = plain + tuple(one for one, own in found if own.is_served)
    reasons = tuple(own.reason for _, own in found if own.reason)
    best = max((own for _, own in found), key=lambda own: (own.is_served, own.ratio or 0),
               default=None)  # fmt: skip
    worth = gain or best
    assert worth is not None
    return Judged(worth, kept, reasons)


class NotServedError(ProofError):
    """No kernel makes IREE faster; `is_final` if a retry would fail as well."""

    def __init__(self, rows: Sequence[KernelRow]) -> None:
        super().__init__(f"{rows[0].problem}: {rows[0].gain.reason}")
        self.is_final = all(row.gain.is_final for row in rows)


@dataclass(frozen=True)
class ProvenLibrary:
    """A library and the outcome of every problem.

    `names` has the kernel of each served problem; `reasons` why ops of a model are left to IREE.
    """

    text: str
    rows: tuple[KernelRow, ...]
    names: dict[str, str]
    reasons: dict[str, str] = field(default_factory=dict)


def proven_library(
    entries: Sequence[LibraryEntry],
    target: str,
    on_row: Callable[[KernelRow], None] = lambda _: None,
    cuts: Cuts = MappingProxyType({}),
) -> ProvenLibrary:
    """Prove each kernel inside IREE and write the library of those that are served.

    Raises NotServedError if none is, RunnerError if no child could be started, KernelsError if
    compiling fails, CompilerAbsentError without IREE.
    """
    if missing := missing_packages(NAME):
        lacking = " and ".join(missing)
        raise CompilerAbsentError(f"{lacking} not installed; install tilewise[kernels]")
    made = library_by(partial(judged, target=target), entries, resolve(target), cuts, on_row=on_row)
    if not made.names:
        raise NotServedError(made.rows)
    return made


def library_by(
    judge: Callable[[LibraryEntry, Sequence[Pattern]], Judged],
    entries: Sequence[LibraryEntry],
    target: Target,
    cuts: Cuts,
    notes: Iterable[str] = (),
    on_row: Callable[[KernelRow], None] = lambda _: None,
) -> ProvenLibrary:
    """Return the library of the kernels that are served by the judgement, which may be none."""
    rows, own, reasons = list[KernelRow](), dict[str, Sequence[Pattern]](), dict[str, str]()
    kernels = []
    for one in entries:
        name = one.replaces.canonical
        try:
            worth = judge(one, cuts.get(name, ()))
            if worth.gain.is_served:
                kernels.append(compiled(one, target))
        except KernelsError as error:  # the others are served
            failure = f"not compiled: {error}"
            worth = Judged(Gain(matched=False, failure=failure, is_final=False))
        problem = one.problem if one.replaces == one.found else one.replaces
        rows.append(KernelRow(problem, worth.gain, one.replaces))
        on_row(rows[-1])
        own[name] = worth.patterns
        if worth.reasons:
            reasons[name] = worth.reasons[0]
    names = {kernel.canonical: kernel.name for kernel in kernels}
    left = [f"Left out: {row.problem}: {row.gain.reason}" for row in rows if row.gain.reason]
    left += [f"Left out, in the form of a model: {name}: {why}"
             for name, why in reasons.items() if name in names]  # fmt: skip
    return ProvenLibrary(
        text_of(kernels, target, [*notes, *left], own), tuple(rows), names, reasons
    )


def library_of(found: dict[str, Any]) -> dict[str, str | None]:
    """Return the library of a stored result: `script`, null if it is not served, and `reason`.

    Raises as `proven_library`, NotServedError if a retry may serve it.
    """
    entry = LibraryEntry.of(parse_problem(found["problem"]), found["best"]["steps"])
    try:
        return {"script": proven_library([entry], found["target"]).text, "reason": ""}
    except NotServedError as error:
        if not error.is_final:
            raise
        return {"script": None, "reason": str(error)}
