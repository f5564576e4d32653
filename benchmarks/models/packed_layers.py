"""The compute stage of a packed model beside the native kernels, layer by layer and in sum.

    python -m benchmarks.models.packed_layers resnet50 [--small] [--channels 16] [--trials 16]

Each distinct layer of the model runs as its script makes it, and as the native kernel of its
problem that a search found, in turns of one process. The native problem has its image with the
halo already there, as packed layers have it, and constant weights. Both have the same epilogue.
"""

import argparse
from dataclasses import dataclass, replace

import numpy as np
from iree.compiler import ir

from benchmarks.report import conditions
from examples.models import MODELS
from examples.models.spellings import SPELLINGS, spelled
from kernels.mlir.frontend.read import Limits, read_module
from kernels.mlir.lowering.apply import Diagnostics, apply_to
from kernels.mlir.lowering.functions import compile_function
from kernels.mlir.lowering.signature import signature_of
from kernels.mlir.network.blocks import Blocks
from kernels.mlir.network.compute import emit_layer, rows_of
from kernels.mlir.network.layer import Layer
from kernels.mlir.network.pack import pack_module
from kernels.mlir.proof.child.timing import time_beside
from kernels.native import lower
from kernels.oracle.operands import make_operands
from kernels.problem import Conv2d, Problem, parse_problem
from kernels.target import Target, detect
from search.engine.tune import tune
from search.records import TuneRequest
from search.store import MemoryStore

LIMITS = Limits(600.0, 16 << 30)
SECONDS = 1.0


@dataclass(frozen=True)
class Row:
    """A layer's times in seconds."""

    problem: Problem
    count: int
    rows: int
    script: float
    native: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--spelling", choices=SPELLINGS, default="linalg")
    parser.add_argument("--channels", type=int, default=16, help="the longest block")
    parser.add_argument("--trials", type=int, default=16, help="of each native search")
    options = parser.parse_args()
    print(conditions())
    module = spelled(MODELS[options.model](options.small), options.spelling).encode()
    problems = {one.where: one.problem for one in read_module(module, LIMITS).occurrences}
    layers = pack_module(module, Blocks(options.channels), LIMITS).layers
    print("| layer | count | rows | script, GFLOP/s | native, GFLOP/s | ratio |")
    print("|---|---:|---:|---:|---:|---:|")
    rows, target = [], detect()
    for layer in layers:
        problem = with_halo(parse_problem(problems[layer.where[0]]))
        rows.append(measured(layer, problem, target, options.trials))
        print(line(rows[-1]), flush=True)
    print(summary(rows))


def with_halo(problem: Problem) -> Problem:
    """The problem of an image that is padded already."""
    if not isinstance(problem, Conv2d):
        return problem
    grown = 2 * problem.pad
    return replace(problem, h=problem.h + grown, w=problem.w + grown, pad=0)


def measured(layer: Layer, problem: Problem, target: Target, trials: int) -> Row:
    best = tune(problem, target, TuneRequest(trials=trials), MemoryStore()).best
    if best is None:
        raise SystemExit(f"{problem}: no native kernel ran")
    native = lower(problem, best.schedule, target).bind(make_operands(problem, 0))
    rows = rows_of(layer.shape, target)
    with ir.Context() as context, ir.Location.unknown():
        diagnostics = Diagnostics(context)
        module = apply_to(layer.payload, emit_layer(layer, rows), diagnostics)
        signature = signature_of(ir.Module.parse(layer.payload))
        function = compile_function(module, signature, diagnostics)
    random = np.random.default_rng(0)
    inputs = [random.random(one.shape).astype(one.dtype) for one in signature.arguments]
    script = function.bind(inputs).call
    times = time_beside([script, native], SECONDS)
    return Row(problem, len(layer.where), rows, *times)


def line(row: Row) -> str:
    speeds = [row.problem.flops / time / 1e9 for time in (row.script, row.native)]
    return (
        f"| `{row.problem}` | {row.count} | {row.rows} | {speeds[0]:.0f} | {speeds[1]:.0f} "
        f"| {row.native / row.script:.2f} |"
    )


def summary(rows: list[Row]) -> str:
    script, native = (
        sum(row.count * getattr(row, name) for row in rows) for name in ("script", "native")
    )
    return (
        f"\nall layers: script {1e3 * script:.3f} ms, native {1e3 * native:.3f} ms, "
        f"ratio {native / script:.2f}"
    )


if __name__ == "__main__":
    main()
