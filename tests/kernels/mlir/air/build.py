"""Schedules from their sizes in order, and the IR that their scripts make."""

from tilewise.kernels.mlir.air import KStreaming, air_module, emit_air, require_streamed
from tilewise.kernels.mlir.air.inspection import OperationPlace, places
from tilewise.kernels.mlir.lowering.apply import Diagnostics, apply_script
from tilewise.kernels.problem import Matmul, parse_problem

NAMES = (
    "block_m", "block_n", "thread_m", "thread_n", "outer_k", "inner_k",
    "pack_m", "pack_n", "pack_k",
)  # fmt: skip
THREADS_OWN = (64, 64, 32, 32, 256, 32, 4, 8, 8)
"""The sizes that the discussion of K-streaming asks for, of 1024x512x2048 in i32."""
SMALL = (32, 32, 16, 16, 64, 16, 4, 8, 8)
ENDS = ("l3", "l2")


def streaming(sizes: tuple[int, ...], result: str = "l3") -> KStreaming:
    return KStreaming.from_json({**dict(zip(NAMES, sizes, strict=True)), "result": result})


def matmul(text: str) -> Matmul:
    return require_streamed(parse_problem(f"matmul:{text}"))


def made(problem: Matmul, schedule: KStreaming) -> tuple[OperationPlace, ...]:
    """What the script moves and computes, by walking the IR that it makes."""
    from iree.compiler import ir

    with ir.Context() as context, ir.Location.unknown():
        text = air_module(problem, emit_air(problem, schedule))
        return places(apply_script(text, Diagnostics(context)))
