"""Any transform script against any payload: applied, run, compared, timed, and described.

A script of ours or somebody else's is put to the same proof as those that are served. The
payload is that of a problem, whose result the reference knows, or any function of static
tensors or memrefs: then the same function lowered without the script is the reference.
"""

from dataclasses import dataclass
from typing import Any

from tilewise.kernels.mlir.payload.function import payload as payload_of
from tilewise.kernels.mlir.proof.proof import Proof
from tilewise.kernels.mlir.proof.prove import REPEAT_SECONDS
from tilewise.kernels.mlir.proof.run_child import run_child
from tilewise.kernels.mlir.transform.module import mlir_version
from tilewise.kernels.problem import Problem


@dataclass(frozen=True)
class Verdict:
    """What became of a script.

    Attributes:
        proof: the stages that it passed, as for a script that is served; `gflops` is known
            for a problem's payload alone.
        outline: loops, copies, buffers and vectors of the transformed module, as text.
        transformed: the module itself; empty where the script did not apply.
        unscripted_us: time of the payload lowered without the script, where it was measured.
        inputs: the kind of inputs on which the error is the largest share of what is allowed;
            empty where a problem's reference decided.
        warnings: what MLIR warned of, each with its location.
    """

    proof: Proof
    outline: tuple[str, ...]
    transformed: str = ""
    unscripted_us: float | None = None
    inputs: str = ""
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The proof without the script, and what else was found."""
        told = self.proof.to_json()
        del told["script"]
        return told | {
            "structure": list(self.outline),
            "unscripted_us": self.unscripted_us,
            "inputs": self.inputs,
            "warnings": list(self.warnings),
        }


def verify(
    script: str,
    *,
    problem: Problem | None = None,
    payload: str | None = None,
    seed: int = 0,
    seconds: float = 60.0,
    memory_bytes: int = 4 << 30,
) -> Verdict:
    """Put a script to the proof.

    A payload is native code in the end: it runs in a child process, with this user's rights.

    Args:
        script: a module with `@__transform_main`; with neither a problem nor a payload it
            also holds the function that it transforms.
        problem: whose payload is transformed.
        payload: a module with one function.
        seed: of the random operands.
        seconds: the child is killed after this long.
        memory_bytes: the child is killed beyond this much memory.

    Raises:
        LimitError: a limit is not above 0, or not finite.
        UnsupportedError: the problem has no payload.
    """
    if problem is not None:
        payload = payload_of(problem)
    reply = run_child(
        {
            "script": script,
            "payload": payload,
            "problem": problem.canonical if problem else None,
            "seed": seed,
            "seconds": seconds,
            "memory_bytes": memory_bytes,
            "repeat_s": REPEAT_SECONDS,
        },
        "tilewise.kernels.mlir.proof.child.verify",
    )
    proof = Proof.of(reply, mlir=mlir_version(), script=script)
    return Verdict(
        proof,
        reply.outline,
        reply.transformed,
        reply.unscripted_us,
        reply.inputs,
        reply.warnings,
    )
