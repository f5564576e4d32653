"""The compute stage of a packed model beside the native kernels, layer by layer and in sum.

    python -m benchmarks.models.packed_layers resnet50 [--small] [--channels 16] [--trials 16]
    python -m benchmarks.models.packed_layers resnet50 --beside rows

Each distinct layer of the model runs as its script makes it, and as the native kernel of its
problem that a search found, in turns of one process. The native problem has its image with the
halo already there, as packed layers have it, and constant weights. Both have the same epilogue.
Pools are no problems, and stand alone. With `--beside rows` the script is measured beside itself
in tiles of one line by one block of columns, and nothing is searched.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from iree.compiler import ir

from benchmarks.report import conditions
from examples.models import MODELS
from examples.models.spellings import SPELLINGS, spelled
from tilewise.kernels.mlir.cpu.loops import largest_divisor
from tilewise.kernels.mlir.frontend.read import ReadLimits, read_module
from tilewise.kernels.mlir.lowering.apply import Diagnostics, apply_to
from tilewise.kernels.mlir.lowering.functions import compile_function, signature_of
from tilewise.kernels.mlir.network.compute import SPARE_REGISTERS, LayerTile, emit_layer, tile_of
from tilewise.kernels.mlir.network.pack import pack_module
from tilewise.kernels.mlir.network.packing import Blocks
from tilewise.kernels.mlir.network.plan import Layer
from tilewise.kernels.mlir.proof.child.timing import time_beside
from tilewise.kernels.native import lower
from tilewise.kernels.oracle.operands import make_operands
from tilewise.kernels.problem import Conv2d, Problem, parse_problem
from tilewise.kernels.target import Target, detect
from tilewise.search.engine.tune import tune
from tilewise.search.records import TuneRequest
from tilewise.search.store import MemoryStore

LIMITS = ReadLimits(600.0, 16 << 30)
SECONDS = 1.0


@dataclass(frozen=True)
class Row:
    """A layer's times in seconds, of its script and of the other, which a pool has not."""

    what: str
    layer: Layer
    tile: LayerTile
    script: float
    other: float | None

    @property
    def count(self) -> int:
        """How often the model has it."""
        return len(self.layer.where)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--spelling", choices=SPELLINGS, default="linalg")
    parser.add_argument("--channels", type=int, default=16, help="the longest block")
    parser.add_argument("--trials", type=int, default=16, help="of each native search")
    parser.add_argument("--beside", choices=("native", "rows"), default="native")
    options = parser.parse_args()
    print(conditions())
    module = spelled(MODELS[options.model](options.small), options.spelling).encode()
    problems = {one.where: one.problem for one in read_module(module, LIMITS).occurrences}
    layers = pack_module(module, Blocks(options.channels), LIMITS).layers
    print(f"| layer | count | tile | script, GFLOP/s | {options.beside}, GFLOP/s | ratio |")
    print("|---|---:|---:|---:|---:|---:|")
    rows, target = [], detect()
    for layer in layers:
        text = problems.get(layer.where[0])
        problem = with_halo(parse_problem(text)) if text else None
        if options.beside == "native":
            rows.append(beside_native(layer, problem, target, options.trials))
        else:
            rows.append(beside_rows(layer, problem, target))
        print(line(rows[-1]), flush=True)
    print(summary(rows, options.beside))


def with_halo(problem: Problem) -> Problem:
    """The problem of an image that is padded already."""
    if not isinstance(problem, Conv2d):
        return problem
    return problem.stored_as(channels_first=problem.has_channels_first, pad=0)


def beside_native(layer: Layer, problem: Problem | None, target: Target, trials: int) -> Row:
    """A layer beside the kernel that a search finds."""
    tile = tile_of(layer.shape, target)
    script = script_of(layer, tile)
    if problem is None:
        return alone(layer, tile, script)
    best = tune(problem, target, TuneRequest(trials=trials), MemoryStore()).best
    if best is None:
        raise SystemExit(f"{problem}: no native kernel ran")
    native = lower(problem, best.schedule, target).bind(make_operands(problem, 0))
    times = time_beside([script, native], SECONDS)
    return Row(str(problem), layer, tile, *times)


def beside_rows(layer: Layer, problem: Problem | None, target: Target) -> Row:
    """A layer beside the tallest tile of one line and one block."""
    tile = tile_of(layer.shape, target)
    script = script_of(layer, tile)
    if problem is None:
        return alone(layer, tile, script)
    held = (target.vector_registers - SPARE_REGISTERS) * target.lanes("f32") // layer.shape.columns
    rows = LayerTile(largest_divisor((layer.shape.length("row"),), max(held, 1)))
    times = time_beside([script, script_of(layer, rows)], SECONDS)
    return Row(str(problem), layer, tile, *times)


def alone(layer: Layer, tile: LayerTile, script: Callable[[int], object]) -> Row:
    """A layer beside nothing."""
    (time,) = time_beside([script], SECONDS)
    return Row(layer.where[0].rpartition(" ")[2], layer, tile, time, None)


def script_of(layer: Layer, tile: LayerTile) -> Callable[[int], object]:
    """Runs a layer as its script makes it, on random inputs, as often as is asked for."""
    with ir.Context() as context, ir.Location.unknown():
        diagnostics = Diagnostics(context)
        module = apply_to(layer.payload, emit_layer(layer, tile), diagnostics)
        signature = signature_of(ir.Module.parse(layer.payload))
        function = compile_function(module, signature, diagnostics)
    random = np.random.default_rng(0)
    inputs = [random.random(one.shape).astype(one.dtype) for one in signature.arguments]
    return function.bind(inputs).call


def line(row: Row) -> str:
    flops, tile = row.layer.shape.flops, row.tile
    script = f"{flops / row.script / 1e9:.0f}"
    other = f"{flops / row.other / 1e9:.0f}" if row.other else "-"
    ratio = f"{row.other / row.script:.2f}" if row.other else "-"
    shape = f"{tile.lines} x {tile.rows} x {tile.blocks * row.layer.shape.columns}"
    return f"| `{row.what}` | {row.count} | {shape} | {script} | {other} | {ratio} |"


def summary(rows: list[Row], name: str) -> str:
    both = [(row.count * row.script, row.count * row.other) for row in rows if row.other]
    script, other = (sum(times) for times in zip(*both, strict=True))
    pools = sum(row.count * row.script for row in rows if not row.other)
    return (
        f"\nall layers: script {1e3 * script:.3f} ms, {name} {1e3 * other:.3f} ms, "
        f"ratio {other / script:.2f}; pools {1e3 * pools:.3f} ms"
    )


if __name__ == "__main__":
    main()
