"""Schedules as transform scripts for real MLIR, and the proof that they work."""

from kernels.mlir.payload import payload
from kernels.mlir.proof import Proof
from kernels.mlir.prove import prove, prove_script, transform
from kernels.mlir.script import Script, emit_script, mlir_version, with_payload
from kernels.mlir.verify import Verdict, verify

__all__ = [
    "Proof",
    "Script",
    "Verdict",
    "emit_script",
    "mlir_version",
    "payload",
    "prove",
    "prove_script",
    "transform",
    "verify",
    "with_payload",
]
