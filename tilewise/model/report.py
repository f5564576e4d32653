"""The report of a model in IREE: each op and the whole, before and after, and the deviation.

Two correct results differ by the rounding of sums. A sum of k products with unit roundoff u has a
relative error of about sqrt(k) u (Higham and Mary, A New Approach to Probabilistic Rounding Error
Analysis, 2019). A narrow operand was rounded before, by half its unit roundoff in rms; that counts
in full, because a difference in the last bit may round to the other neighbour in every sum of the
next layer. Errors of layers are independent, so their squares add. A model that magnifies its
errors has to be measured in a wider type.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt

from tilewise.kernels.mlir.frontend.graph import Skipped
from tilewise.kernels.problem import Accuracy, Problem
from tilewise.kernels.quoting import columns, duration
from tilewise.model.measuring import FormRuns, ModelTimes
from tilewise.schema.base import Json

SAFETY = 3.2
"""Of a plain sum's error: that of two levels of quadrants is 3 times as large, and one of those
differs from a plain sum by sqrt(1 + 3^2) = 3.2 times it; Winograd's is up to twice as large."""

ELEMENTWISE = 2.0**-20
"""Of all that is not a contraction, such as an exponential: some units of f32."""

UNITS = {"f32": 2.0**-24, "f64": 2.0**-53}
NARROW = {"bf16": 2.0**-9, "f16": 2.0**-12, "i8": 2.0**-9}
"""Half a unit, in rms. Bytes count as results alone, which may be floats rounded to a neighbour."""
IREES_GELU = 2.0**-14
"""The deviation of the tanh form of GELU in IREE, whose constant is 0.797724, not sqrt(2 / pi)."""


def tolerance(contractions: Iterable[tuple[Problem, int]], stored: Iterable[str] = ()) -> float:
    """Return the allowed relative rms deviation of a model of these contractions and counts.

    `stored` are the element types to which its results are rounded.
    """
    total = sum(NARROW.get(one, 0.0) ** 2 for one in stored)
    for problem, count in contractions:
        element = problem.element
        if element.is_float:
            of_sum = problem.depth * UNITS[element.accumulator] ** 2
            of_gelu = IREES_GELU if problem.epilogue == "gelu_tanh" else 0.0
            total += count * (of_sum + NARROW.get(element.name, 0.0) ** 2 + of_gelu**2)
    return SAFETY * sqrt(total) + ELEMENTWISE


DEFAULT, DATA_TILING = "default", "data tiling"
WITH = ("library", "library, data tiling")
"""The compiled forms: as IREE does it alone, in two ways, and with our library before each."""

FAULT = "iree-org/iree#16168"
CURE = "have the model return no argument that it adds to"


@dataclass(frozen=True)
class ProblemReport:
    """One problem of the model.

    Attributes:
        alone_us: IREE's times on this problem alone, in microseconds, by `DEFAULT`, `DATA_TILING`.
        library_us: IREE's time with our kernel; None where not measured.
        replaced: call sites of our kernel in the compiled model.
        reason: why not every occurrence is replaced.
    """

    problem: str
    count: int
    where: tuple[str, ...]
    schedule: str | None = None
    alone_us: dict[str, float] = field(default_factory=dict)
    library_us: float | None = None
    replaced: int = 0
    reason: str = ""

    def to_json(self) -> Json:
        """Return one element of `ops`."""
        return {
            "problem": self.problem,
            "count": self.count,
            "where": list(self.where),
            "schedule": self.schedule,
            "default_us": self.alone_us.get(DEFAULT),
            "data_tiling_us": self.alone_us.get(DATA_TILING),
            "library_us": self.library_us,
            "replaced": self.replaced,
            "reason": self.reason,
        }


@dataclass(frozen=True)
class SizeRun:
    """The runs of a model at one size of its dynamic dim, such as `seq=17`; empty without one."""

    size: str
    times: ModelTimes
    is_inside: bool = True

    def to_json(self) -> Json:
        """Return one element of `sizes`."""
        forms = {
            name: {"time_ms": form.time_ms, "deviation": form.deviation}
            for name, form in self.times.forms.items()
        }
        return {"size": self.size, "inside": self.is_inside, "forms": forms}


@dataclass(frozen=True)
class ModelReport:
    """A model compiled with and without our kernels.

    With a dynamic dim, `measured` has the times at its largest size, and the largest deviations of
    all `sizes`.
    """

    model: str
    target: str
    machine: dict[str, str]
    ops: tuple[ProblemReport, ...]
    skipped: tuple[Skipped, ...]
    measured: ModelTimes
    tolerance: float
    refused: dict[str, str] = field(default_factory=dict)
    accuracy: Accuracy = "standard"
    sizes: tuple[SizeRun, ...] = ()

    @property
    def best(self) -> str:
        """The fastest form with our kernels; a correct one if there is any."""
        forms = self.measured.forms
        ours = forms.keys() & set(WITH)
        return min(ours - set(self.wrong) or ours, key=lambda name: forms[name].time_ms)

    @property
    def wrong(self) -> dict[str, FormRuns]:
        """The forms that deviate from the reference by more than the tolerance."""
        forms = self.measured.forms.items()
        return {name: form for name, form in forms if not form.deviation <= self.tolerance}

    @property
    def disagreement(self) -> str:
        """Which forms exceed the tolerance and what to use instead; empty if none does."""
        wrong = self.wrong
        if not wrong:
            return ""
        named = "; ".join(f"{name} by {form.deviation:.2g}" for name, form in wrong.items())
        return (
            f"forms deviate from the model's results by more than {self.tolerance:.2g}: {named}; "
            f"{self._fault}{self._way}"
        )

    @property
    def _fault(self) -> str:
        """IREE's known fault, if it explains every wrong form."""
        wrong = self.wrong
        written = sorted({at for form in wrong.values() for at in form.overwrites})
        if not all(form.overwrites for form in wrong.values()):
            return ""
        return f"IREE's compiler{overwritten(written)}; "

    @property
    def _way(self) -> str:
        wrong = self.wrong
        right = [name for name in self.measured.forms if name not in wrong]
        ours = [name for name in right if name in WITH]
        if DATA_TILING in wrong and wrong.keys() <= {DATA_TILING, WITH[1]} and ours:
            return "IREE's data tiling alone is wrong, too: use the library without it"
        if DEFAULT not in wrong:
            return "do not use the library" if wrong.keys() & set(WITH) else "use the library"
        if not right:
            return f"no form is right: {CURE}" if self._fault else "no form is right"
        return f"IREE's own code is wrong, too: use {ours[0] if ours else right[0]}"

    def speedup(self, over: str) -> float | None:
        """Return the time of a form over that of our best; None if it does not exist."""
        forms = self.measured.forms
        return forms[over].time_ms / forms[self.best].time_ms if over in forms else None

    def to_json(self) -> Json:
        """Return the object that `tilewise model --json` prints."""
        forms = self.measured.forms
        return {
            "model": self.model,
            "target": self.target,
            "accuracy": self.accuracy,
            "machine": self.machine,
            "entry": self.measured.entry,
            "arguments": list(self.measured.arguments),
            "results": list(self.measured.results),
            "ops": [op.to_json() for op in self.ops],
            "passes": [],  # of version 0.1: passes over rows between the problems
            "skipped": [dict(vars(one)) for one in self.skipped],
            "forms": {
                name: {"time_ms": form.time_ms, "runs": len(form.times),
                       "deviation": form.deviation, "right": name not in self.wrong,
                       "overwrites": list(form.overwrites)}
                for name, form in forms.items()
            },
            "refused": self.refused,
            "best": self.best,
            "speedup": {over: self.speedup(over) for over in (DEFAULT, DATA_TILING)},
            "tolerance": self.tolerance,
            "right": not self.wrong,
            "sizes": [run.to_json() for run in self.sizes],
        }  # fmt: skip


def overwritten(positions: Collection[int]) -> str:
    """Name overwritten arguments as the end of a message; empty without any."""
    named = ", ".join(map(str, positions))
    return f" writes over argument {named}, which is a result too ({FAULT})" if named else ""


def report_text(report: ModelReport) -> str:
    """Describe the ops, the whole model, what was left to IREE, and the machine."""
    lines = [*_ops(report.ops), "", *_sizes(report.sizes), *_forms(report), "", *_left(report)]
    versions = ", ".join(f"{name} {version}" for name, version in report.machine.items())
    lines.append(f"{report.target}, accuracy={report.accuracy}: {versions}")
    return "".join(f"{line.rstrip()}\n" for line in lines)


_HEAD = ("problem", "count", "replaced", DEFAULT, DATA_TILING, "ours", "ratio")


def _ops(ops: Sequence[ProblemReport]) -> list[str]:
    """Return a row for each op, and one of sums over the measured ops."""
    rows = [_row(op.problem, op.count, op.replaced, op.alone_us, op.library_us) for op in ops]
    if counted := [op for op in ops if op.library_us is not None and op.alone_us]:
        rows.append(_row(
            "all of them, by count" if len(counted) == len(ops) else "measured ones, by count",
            sum(op.count for op in counted),
            sum(op.replaced for op in counted),
            {
                name: sum(op.count * op.alone_us[name] for op in counted)
                for name in (DEFAULT, DATA_TILING) if all(name in op.alone_us for op in counted)
            },
            sum(op.count * (op.library_us or 0.0) for op in counted),
        ))  # fmt: skip
    return columns([_HEAD, *rows], right=range(1, len(_HEAD)))


def _row(
    name: str, count: int, replaced: int, alone_us: Mapping[str, float], library_us: float | None
) -> tuple[str, ...]:
    """Return the cells of an op; a form that was not measured has no time."""
    known = min(alone_us.values(), default=None)
    return (
        name, str(count), str(replaced), duration(alone_us.get(DEFAULT)),
        duration(alone_us.get(DATA_TILING)), duration(library_us),
        f"{known / library_us:.2f}" if known and library_us else "-",
    )  # fmt: skip


def _sizes(sizes: Sequence[SizeRun]) -> list[str]:
    """Return a row for each size of a dynamic dim."""
    if not sizes:
        return []
    names = [*sizes[0].times.forms]
    rows = [
        (run.size if run.is_inside else f"{run.size}, outside",
         *(duration(1e3 * run.times.forms[name].time_ms) for name in names),
         f"{max(form.deviation for form in run.times.forms.values()):.2g}")
        for run in sizes
    ]  # fmt: skip
    return [*columns([("size", *names, "deviation"), *rows], right=range(1, len(names) + 2)), ""]


def _forms(report: ModelReport) -> list[str]:
    measured = report.measured
    given = f"{measured.entry}({', '.join(measured.arguments)})"
    lines = [f"{given} -> {', '.join(measured.results)}"]
    for name, form in measured.forms.items():
        times = sorted(form.times)
        lines.append(
            f"  {name:<21} {duration(1e3 * form.time_ms):>10}   ({duration(1e6 * times[0])} to "
            f"{duration(1e6 * times[-1])} in {len(times)} runs)   deviation {form.deviation:.2g}"
            f"{'  WRONG' if name in report.wrong else ''}"
        )
    lines += [f"  {name:<21} {why}" for name, why in report.refused.items()]
    ratios = {name: report.speedup(name) for name in (DEFAULT, DATA_TILING)}
    over = ", ".join(f"{ratio:.2f}x {name}" for name, ratio in ratios.items() if ratio is not None)
    if not any(op.replaced for op in report.ops):
        over = "none is in use, so that all forms are IREE's own"
    tolerance = f"within the tolerance of {report.tolerance:.2g}"
    if report.wrong:
        tolerance = f"BEYOND the tolerance of {report.tolerance:.2g}: {', '.join(report.wrong)}"
    lines.append(f"with tuned kernels: {over}; {tolerance}")
    return lines


def _left(report: ModelReport) -> list[str]:
    lines = [
        f"{op.count - op.replaced} of {op.count} left to IREE: {op.problem}: {op.reason}"
        for op in report.ops
        if op.replaced < op.count
    ]
    lines += [f"no problem: {one.op} at {one.where}: {one.reason}" for one in report.skipped]
    return [*lines, ""] if lines else []
