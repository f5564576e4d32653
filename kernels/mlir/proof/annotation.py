"""What a proof found, in the header of its script."""

from collections.abc import Sequence

from tilewise.kernels.durations import duration
from tilewise.kernels.mlir.proof.proof import Proof
from tilewise.kernels.mlir.transform.module import HEADER_END
from tilewise.kernels.target import detect

PROVER = "proven by: "


def annotated(script: str, proof: Proof, target: str | None = None, by: str | None = None) -> str:
    """`script` with what its proof found in the header, so that a stray file explains itself.

    Args:
        script: without such lines.
        proof: of it.
        target: where it was proven; None is this machine.
        by: the machine that reports the proof; None is this one.
    """
    found = found_lines(proof)
    found += [f"target:   {target or detect().canonical}", f"mlir:     {proof.mlir}"]
    found += by_lines(by)
    lines = "".join(f"// {line}\n" for line in found)
    head, mark, rest = script.partition(HEADER_END)
    return f"{head}{lines}{mark}{rest}" if mark else f"{lines}{script}"


def by_lines(by: str | None) -> list[str]:
    """Return the header's line on the machine that reports a proof; none for this machine."""
    return [] if by is None else [f"{PROVER}{by}"]


def prover_of(script: str) -> str | None:
    """Return the machine that reported the proof of a script, from the script's header.

    None if the process that stored the proof made it.
    """
    for line in script.partition(HEADER_END)[0].splitlines():
        if line.startswith(f"// {PROVER}"):
            return line.removeprefix(f"// {PROVER}")
    return None


def found_lines(proof: Proof, beside: Sequence[str] = ()) -> list[str]:
    """Speed and error of a proof, or why there is none; `beside` has what ran in turns with it."""
    if proof.ok:
        return [
            *_speed(proof, beside),
            f"error:    {proof.max_error:.3g}, allowed {proof.tolerance:.3g}",
        ]
    reason = proof.message.splitlines()[0] if proof.message else ""
    return [f"unproven: {proof.failure}: {reason}".rstrip(": ")]


def _speed(proof: Proof, beside: Sequence[str]) -> list[str]:
    """Lines on the time of a script, if it was timed."""
    if proof.interval is None:
        return []
    low, high = proof.interval
    return [
        f"speed:    {proof.gflops:.1f} GFLOP/s (95% interval {low:.1f} to {high:.1f}), "
        f"{duration(proof.time_us)}",
        *(f"beside:   {line}" for line in beside),
    ]
