"""What a model came to: each op before and after, the whole before and after, what was left."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from tilewise.kernels.mlir.frontend.graph import Skipped
from tilewise.kernels.problem import Accuracy
from tilewise.model.measuring import Form, Measured

Json = dict[str, Any]

DEFAULT, DATA_TILING = "default", "data tiling"
WITH = ("library", "library, data tiling")
"""The compiled forms: as IREE does it alone, in two ways, and with our library before each."""

FAULT = "iree-org/iree#16168"
CURE = "have the model return no argument that it adds to"


@dataclass(frozen=True)
class Op:
    """One problem of the model.

    Attributes:
        problem: canonical.
        count: places of the model that are it.
        where: the places.
        schedule: hash of ours; None where there is none.
        alone_us: IREE's times on this problem alone, in microseconds, by `DEFAULT`, `DATA_TILING`.
        library_us: IREE's time with our kernel; None where that was not measured.
        replaced: places of the compiled model that call our kernel.
        reason: why not all are; empty where they are.
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
        """One element of `ops`."""
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
class Report:
    """A model compiled with and without our kernels.

    Attributes:
        model: the file's name.
        target: canonical.
        machine: the processor's name and the versions of those that took part.
        ops: its problems, in its order.
        skipped: what could have been a problem.
        measured: the compiled forms.
        tolerance: the deviation that two right results may have.
        refused: why forms, or the reference, are missing that do not compile, by their names.
        accuracy: of all its problems.
    """

    model: str
    target: str
    machine: dict[str, str]
    ops: tuple[Op, ...]
    skipped: tuple[Skipped, ...]
    measured: Measured
    tolerance: float
    refused: dict[str, str] = field(default_factory=dict)
    accuracy: Accuracy = "standard"

    @property
    def best(self) -> str:
        """The faster form with our kernels, of those that are right if one is."""
        forms = self.measured.forms
        ours = forms.keys() & set(WITH)
        return min(ours - set(self.wrong) or ours, key=lambda name: forms[name].time_ms)

    @property
    def is_right(self) -> bool:
        """Whether all forms agree with the reference within the tolerance."""
        return not self.wrong

    @property
    def wrong(self) -> dict[str, Form]:
        """The forms that deviate from the reference by more than the tolerance."""
        forms = self.measured.forms.items()
        return {name: form for name, form in forms if not form.deviation <= self.tolerance}

    @property
    def disagreement(self) -> str:
        """Return which forms deviate from the reference, and what to use; empty if none does."""
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
        """The fault of IREE's compiler that explains what is wrong, if it is the known one."""
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
        """Time of a form over that of our best: medians of the same rounds; None without it."""
        forms = self.measured.forms
        return forms[over].time_ms / forms[self.best].time_ms if over in forms else None

    def to_json(self) -> Json:
        """The object that `tilewise model --json` prints."""
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
            "skipped": [
                {"op": one.op, "reason": one.reason, "where": one.where} for one in self.skipped
            ],
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
            "right": self.is_right,
        }  # fmt: skip


def overwritten(positions: Collection[int]) -> str:
    """Return which arguments were written over, as the end of a message; empty without any."""
    named = ", ".join(map(str, positions))
    return f" writes over argument {named}, which is a result too ({FAULT})" if named else ""
