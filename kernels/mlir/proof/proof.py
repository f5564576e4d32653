"""The outcome of a script that was applied, compiled, run, checked and timed in a child process."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from tilewise.kernels.mlir.transform.module import HEADER_END
from tilewise.kernels.quoting import duration
from tilewise.kernels.system.limited_child import run_limited
from tilewise.kernels.system.typed_json import from_json
from tilewise.kernels.target import detect

FAILURES = ("apply", "verify", "structure", "lower", "compile", "timeout", "crash", "memory",
            "output", "wrong", "race", "slower")  # fmt: skip
PROVER = "proven by: "
CHILD = "tilewise.kernels.mlir.proof.child.prove"
_WARNED = re.compile(r"^at (loc\(.*)$", re.MULTILINE)
_CONTEXT = "see current operation"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How far a script came, and why no further.

    Attributes:
        applied: the interpreter ran the script to its end and the module verifies.
        max_error: largest deviation from the reference (wrong elements, for integers); None also
            for a result that is not finite.
        tolerance: the deviation allowed at that element.
        gflops, interval: from the median time, with its 95% confidence interval.
        vectorised: the innermost loops compute on vectors alone.
        lower_s, compile_s: seconds to LLVM IR, and from there to machine code.
        processor_s: processor time of applying, lowering and compiling.
        failure: one of `FAILURES`, or None.
        message: what went wrong, with MLIR's diagnostic and the line of the script.
    """

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
    failure: str | None = None
    message: str = ""


@dataclass(frozen=True)
class SizeProof:
    """What was found at one size, such as `m=8`: the error, the allowed one, and the speed."""

    size: str
    max_error: float
    tolerance: float
    gflops: float
    time_us: float


@dataclass(frozen=True, kw_only=True)
class ProofReply(Outcome):
    """The reply of a child that proves something.

    Attributes:
        outline: loops, copies, buffers and vectors of the transformed module.
        unscripted_us: time of the payload lowered without the script.
        inputs: the kind of inputs whose error is the largest share of the tolerance.
        warnings: those of MLIR, with locations.
        sizes: those of a range.
    """

    outline: tuple[str, ...] = ()
    transformed: str = ""
    unscripted_us: float | None = None
    inputs: str = ""
    warnings: tuple[str, ...] = ()
    sizes: tuple[SizeProof, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ScriptProof(Outcome):
    """The outcome for one script, on the machine that ran it.

    `notes` say what scripts of the problem cannot do, or do otherwise than native kernels.
    """

    mlir: str
    script: str
    notes: tuple[str, ...] = ()

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
        """Return a JSON object with every field, and `ok`."""
        interval = self.interval and list(self.interval)
        return {**asdict(self), "interval": interval, "notes": list(self.notes), "ok": self.ok}

    @classmethod
    def of(
        cls, found: ProofReply, *, mlir: str, script: str, notes: tuple[str, ...] = ()
    ) -> "ScriptProof":
        """Return the proof from a child's reply."""
        outcome = {field.name: getattr(found, field.name) for field in fields(Outcome)}
        return cls(mlir=mlir, script=script, notes=notes, **outcome)


def run_child(request: dict[str, Any], module: str = CHILD) -> ProofReply:
    """Send `request` to a fresh child that runs `module`; return its reply or failure."""
    ended = run_limited(request, module)
    if ended.reply is None:
        return ProofReply(failure=ended.failure, message=ended.message)
    warned = [text for text in _WARNED.findall(ended.printed) if _CONTEXT not in text]
    try:
        return replace(from_json(ProofReply, ended.reply), warnings=tuple(dict.fromkeys(warned)))
    except ValueError:
        return ProofReply(
            failure="crash", message="the child ended without a reply that can be read"
        )


def annotated(
    script: str,
    proof: ScriptProof,
    target: str | None = None,
    by: str | None = None,
    found: Sequence[str] = (),
) -> str:
    """Return `script` with its proof in the header.

    `by` names another machine that reports it, and `found` are lines for several sizes.
    """
    found = [*(found or found_lines(proof))]
    found += [f"target:   {target or detect().canonical}", f"mlir:     {proof.mlir}"]
    found += by_lines(by)
    lines = "".join(f"// {line}\n" for line in found)
    head, mark, rest = script.partition(HEADER_END)
    return f"{head}{lines}{mark}{rest}" if mark else f"{lines}{script}"


def by_lines(by: str | None) -> list[str]:
    """Return the header's line on the machine that reports a proof; none for this machine."""
    return [] if by is None else [f"{PROVER}{by}"]


def prover_of(script: str) -> str | None:
    """Return the machine that reported a script's proof, by its header; None for this machine."""
    for line in script.partition(HEADER_END)[0].splitlines():
        if line.startswith(f"// {PROVER}"):
            return line.removeprefix(f"// {PROVER}")
    return None


def found_lines(proof: ScriptProof, peers: Sequence[str] = ()) -> list[str]:
    """Return lines on a proof's speed and error, with those of `peers`, or why it failed."""
    if not proof.ok:
        reason = proof.message.splitlines()[0] if proof.message else ""
        return [f"unproven: {proof.failure}: {reason}".rstrip(": ")]
    lines = []
    if proof.interval is not None:
        low, high = proof.interval
        lines = [
            f"speed:    {proof.gflops:.1f} GFLOP/s (95% interval {low:.1f} to {high:.1f}), "
            f"{duration(proof.time_us)}",
            *(f"peer:     {line}" for line in peers),
        ]
    return [*lines, f"error:    {proof.max_error:.3g}, allowed {proof.tolerance:.3g}"]
