"""Flavor `air`: K-streaming through two memories, as MLIR-AIR's users want it."""

from tilewise.kernels.mlir.air.choice import AIE, Memories, Traffic, choose, describe, traffic
from tilewise.kernels.mlir.air.prove import AirScript, attempt, prove_air, script_for
from tilewise.kernels.mlir.air.schedule import KStreaming, check_streaming, require_streamed
from tilewise.kernels.mlir.air.script import air_module, emit_air

__all__ = [
    "AIE",
    "AirScript",
    "KStreaming",
    "Memories",
    "Traffic",
    "air_module",
    "attempt",
    "check_streaming",
    "choose",
    "describe",
    "emit_air",
    "prove_air",
    "require_streamed",
    "script_for",
    "traffic",
]
