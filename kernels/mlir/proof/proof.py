"""`Proof`: what happened when a script was applied, compiled, run, checked and timed."""

from dataclasses import asdict, dataclass, fields
from typing import Any

from tilewise.kernels.mlir.proof.found import Found

FAILURES = (
    "apply",
    "verify",
    "structure",
    "lower",
    "compile",
    "timeout",
    "crash",
    "memory",
    "output",
    "wrong",
    "race",
    "slower",
)


@dataclass(frozen=True, kw_only=True)
class Proof:
    """The outcome for one script, on the machine that ran it.

    Attributes:
        applied: the interpreter ran the script to its end and the module verifies.
        executed: the compiled code ran to its end.
        max_error: largest deviation from the reference (wrong elements, for integers); None
            where the result is no finite number, too.
        tolerance: the deviation allowed at that element.
        gflops: from the median time, with the operations counted as the problem does.
        interval: 95% confidence interval of `gflops`.
        time_us: median time of one call in microseconds.
        mlir: distribution and version of the MLIR used.
        vectorised: the innermost loops compute on vectors, and nothing is left scalar.
        apply_s: seconds to parse, apply and verify.
        lower_s: seconds from the transformed module to LLVM IR.
        compile_s: seconds from LLVM IR to machine code.
        processor_s: processor time of these three, to which others on the machine add nothing.
        failure: one of `FAILURES`, or None.
        notes: what scripts of the problem cannot do, or do otherwise than native kernels.
        message: what went wrong, with MLIR's diagnostic and the line of the script.
        script: the text that was proven.
    """

    mlir: str
    script: str
    applied: bool = False
    executed: bool = False
    max_error: float | None = None
    tolerance: float | None = None
    gflops: float | None = None
    interval: tuple[float, float] | None = None
    time_us: float | None = None
    vectorised: bool = False
    apply_s: float = 0.0
    lower_s: float = 0.0
    compile_s: float = 0.0
    processor_s: float = 0.0
    notes: tuple[str, ...] = ()
    failure: str | None = None
    message: str = ""

    def __post_init__(self) -> None:
        if self.failure is not None and self.failure not in FAILURES:
            raise ValueError(f"failure={self.failure!r} is not one of {', '.join(FAILURES)}")

    @property
    def ok(self) -> bool:
        """Whether the script applied, ran, and gave the right result."""
        return (
            self.failure is None
            and self.applied
            and self.executed
            and self.max_error is not None
            and self.tolerance is not None
            and self.max_error <= self.tolerance
        )

    def to_json(self) -> dict[str, Any]:
        """A JSON object with every field, and `ok`."""
        interval = self.interval and list(self.interval)
        return {**asdict(self), "interval": interval, "notes": list(self.notes), "ok": self.ok}

    @classmethod
    def of(cls, found: Found, *, mlir: str, script: str, notes: tuple[str, ...] = ()) -> "Proof":
        """The proof that a child's reply amounts to."""
        parts = {f.name: getattr(found, f.name) for f in fields(found) if f.name in _NAMES}
        return cls(mlir=mlir, script=script, notes=notes, **parts)

    @classmethod
    def from_json(cls, source: dict[str, Any]) -> "Proof":
        """Read `to_json`'s object back; unknown keys are ignored."""
        known = {f.name for f in fields(cls)}
        values = {key: value for key, value in source.items() if key in known}
        if values.get("interval") is not None:
            low, high = values["interval"]
            values["interval"] = (low, high)
        if "notes" in values:
            values["notes"] = tuple(values["notes"])
        return cls(**values)


_NAMES = {field.name for field in fields(Proof)}
