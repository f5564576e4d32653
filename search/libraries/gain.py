"""The gain of a kernel inside IREE: compiled, matched, compared, and timed.

Our own call, IREE with the kernel, its default and its data tiling are timed in the same rounds of
one child process. An op whose operands are permuted is compiled as its module has it, including the
transpositions that the kernel needs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import geometric_mean, median
from typing import Any

from tilewise.kernels.dispatches.compilation import compiled_with
from tilewise.kernels.dispatches.executable import LibraryEntry, compiled
from tilewise.kernels.dispatches.library import text_of
from tilewise.kernels.dispatches.patterns.any_size import of_size
from tilewise.kernels.dispatches.patterns.pattern import Pattern, module_of_contraction
from tilewise.kernels.errors import CompilerError
from tilewise.kernels.mlir.iree.compiler import compile_module
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.quoting import duration, one_line
from tilewise.kernels.range_schedule import RangeSchedule
from tilewise.kernels.system.limited_child import run_limited
from tilewise.kernels.system.typed_json import from_json
from tilewise.kernels.target import resolve
from tilewise.search.peers.iree import NAME, VARIANTS
from tilewise.search.runner.protocol import CandidateFailureError, RoundsReply
from tilewise.search.runner.runner import Runner, RunnerLimits

IREE = "iree"
BUDGET_S = 1.5


@dataclass(frozen=True)
class Gain:
    """The outcome of one kernel inside IREE; times are medians in microseconds.

    Attributes:
        matched: whether IREE's compiler found the problem and took the kernel.
        max_error: None if it did not run.
        library_us: IREE with the kernel.
        own_us: the kernel alone.
        alone_us: IREE without it, by mode: `default`, `data tiling`.
        failure: why it is not served, whatever the times.
        is_final: whether a retry would fail as well; not if a process died.
    """

    matched: bool
    max_error: float | None = None
    tolerance: float | None = None
    library_us: float | None = None
    own_us: float | None = None
    alone_us: Mapping[str, float] | None = None
    failure: str = ""
    is_final: bool = True

    @property
    def ratio(self) -> float | None:
        """The best time of IREE alone over that with the kernel."""
        if self.library_us is None or not self.alone_us:
            return None
        return min(self.alone_us.values()) / self.library_us

    @property
    def is_served(self) -> bool:
        """Whether IREE is correct with the kernel and not slower."""
        ratio = self.ratio
        return not self.failure and self.matched and (ratio is None or ratio >= 1)

    @property
    def reason(self) -> str:
        """Why the kernel is left out; empty if it is not."""
        if self.is_served or self.failure:
            return self.failure
        assert self.alone_us
        mode = min(self.alone_us, key=self.alone_us.__getitem__)
        return (
            f"IREE alone is faster: {duration(self.alone_us[mode])} ({mode}), "
            f"{duration(self.library_us)} with the kernel"
        )


def measured(problem: Problem, steps: list[Any], target: str, budget_s: float = BUDGET_S) -> Gain:
    """Compile, compare and time one kernel inside IREE.

    Raises RunnerError if the child could not be started.
    """
    limits = RunnerLimits.with_libraries(problem)
    with Runner(problem, target, limits=limits) as runner:
        try:
            ready = runner.peer(NAME, steps)
            if ready.absent is not None:
                return Gain(matched=False, failure=ready.absent)
            error, tolerance = ready.deviations[0]
            alone = runner.peer(IREE).absent is None
            reply = runner.time_with_peers(steps, [NAME, *([IREE] if alone else [])], budget_s)
        except CandidateFailureError as failed:
            return Gain(matched=False, failure=f"{failed.kind}: {failed}", is_final=False)
    return _gain(reply, error, tolerance)


def _gain(reply: RoundsReply, error: float, tolerance: float) -> Gain:
    times = {(way.peer, way.variant): 1e6 * median(way.times) for way in reply.ways}
    library = next(time for (peer, _), time in times.items() if peer == NAME)
    alone = {way: time for (peer, way), time in times.items() if peer == IREE}
    return Gain(True, error, tolerance, library, 1e6 * median(reply.times), alone)


CHILD = "tilewise.search.libraries.as_found_child"


SAMPLES = 5  # sizes of a range at which a kernel is timed


@dataclass(frozen=True)
class Case:
    """Operands that the child runs a module with: of a problem, in the shapes of a pattern."""

    problem: str
    pattern: Pattern
    steps: tuple[Any, ...]
    is_timed: bool = True


@dataclass(frozen=True)
class FormTimes:
    """The child's result of a case; `times` has seconds by form, the kernel's under an empty name.

    They are empty where nothing is timed.
    """

    error: float
    tolerance: float
    times: dict[str, tuple[float, ...]]


def measured_as_found(entry: LibraryEntry, pattern: Pattern, target: str, budget_s: float) -> Gain:
    """Compile, compare and time a kernel for a pattern of its problem.

    The kernel of a range is timed at five sizes, and compared at one outside as well.

    Raises KernelsError if the schedule cannot be compiled.
    """
    kernel, found = compiled(entry, resolve(target)), entry.found
    own = replace(pattern, added=None)  # operands are the caller's here, and may be written over
    cases = _cases(entry, own)
    module = module_of_contraction(own, has_constant_weights=found.has_constant_weights)
    try:
        library = text_of([kernel], resolve(target), (), {kernel.canonical: (own,)})
        ours = compiled_with(module, library)
        codes = {"": ours.code}
        for name, flags in VARIANTS.items():
            codes[name] = compile_module(module, flags)
    except CompilerError as error:
        return Gain(matched=False, failure=one_line(str(error)))
    if not ours.kernels:
        return Gain(matched=False, failure="IREE's compiler does not find it")
    limits = RunnerLimits.with_libraries(parse_problem(cases[-1].problem))
    request = {
        "cases": [asdict(case) for case in cases],
        "codes": {name: code.hex() for name, code in codes.items()}, "budget_s": budget_s,
        "threads": resolve(target).threads, "seconds": limits.setup_s * len(cases),
        "memory_bytes": limits.memory_bytes,
    }  # fmt: skip
    ended = run_limited(request, CHILD)
    if ended.reply is None:
        return Gain(matched=False, failure=one_line(ended.message), is_final=False)
    found_times = [from_json(FormTimes, one) for one in ended.reply["cases"]]
    return _gain_as_found(found_times, [case.problem for case in cases])


def _cases(entry: LibraryEntry, pattern: Pattern) -> list[Case]:
    """Return what to run: of a range a size outside, and sizes from its first to its last."""
    whole = entry.schedule
    if not isinstance(whole, RangeSchedule):
        return [Case(entry.found.canonical, pattern, tuple(whole.to_json()))]
    sizes = whole.problems.sizes
    at = sorted({round(i * (len(sizes) - 1) / (SAMPLES - 1)) for i in range(SAMPLES)})
    outside = tuple(values[0] - 1 or values[-1] + 1 for values in whole.problems.ranges)
    json = whole.problems.smallest.to_json()
    other = parse_problem({**json, **dict(zip(whole.problems.dims, outside, strict=True))})
    return [
        Case(other.canonical, of_size(pattern, outside), (), is_timed=False),
        *(
            Case(
                str(whole.problems.at(size)),
                of_size(pattern, size),
                tuple(whole.at(size).to_json()),
            )
            for size in (sizes[i] for i in at)
        ),
    ]


def _gain_as_found(cases: Sequence[FormTimes], names: Sequence[str]) -> Gain:
    """Return the gain with the largest error of all cases, and geometric means of their times."""
    # NaN is the largest error, of those relative to what is allowed.
    excesses = [(not one.error <= one.tolerance, one.error / (one.tolerance or 1)) for one in cases]
    at = max(range(len(cases)), key=excesses.__getitem__)
    worst, name = cases[at], names[at]
    timed = [case.times for case in cases if case.times]
    times = {form: 1e6 * geometric_mean([median(one[form]) for one in timed]) for form in timed[0]}
    wrong = ""
    if not worst.error <= worst.tolerance:
        of = f" for {name}" if len(cases) > 1 else ""
        wrong = f"its result{of} is off by {worst.error:.2g}, and {worst.tolerance:.2g} is allowed"
    return Gain(True, worst.error, worst.tolerance, times.pop(""), None, times, wrong)
