"""What a proof found, in the header of its script."""

from collections.abc import Sequence

from kernels.durations import duration
from kernels.mlir.proof.proof import Proof
from kernels.mlir.transform.module import HEADER_END
from kernels.target import detect


def annotated(script: str, proof: Proof) -> str:
    """`script` with what its proof found in the header, so that a stray file explains itself."""
    found = found_lines(proof)
    found += [f"target:   {detect().canonical}", f"mlir:     {proof.mlir}"]
    lines = "".join(f"// {line}\n" for line in found)
    head, mark, rest = script.partition(HEADER_END)
    return f"{head}{lines}{mark}{rest}" if mark else f"{lines}{script}"


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
