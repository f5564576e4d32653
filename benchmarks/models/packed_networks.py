"""Whole models packed by one script: what is left to move, and whether they compute the same.

    python -m benchmarks.models.packed_networks [--model M] [--small] [--execute] [--rows N]

A row for each model and spelling: packs and unpacks of activations that are left, those of them
that move data, packs of weights, seconds to apply the script. With `--execute` each runs beside
itself on random weights, with the error that this shows.
"""

import argparse
import time

from benchmarks.report import conditions
from examples.models import MODELS
from examples.models.spellings import spelled
from tilewise.kernels.mlir.frontend.read import ReadLimits
from tilewise.kernels.mlir.network.pack import pack_module, prove_packs
from tilewise.kernels.mlir.network.packing import Blocks
from tilewise.kernels.mlir.network.plan import PackPlan

NETWORKS = {
    "resnet50, nhwc": ("resnet50", "linalg"),
    "resnet50, nchw": ("resnet50", "torch"),
    "resnet50, StableHLO": ("resnet50", "stablehlo"),
    "mobilenet_v2, nhwc": ("mobilenet_v2", "linalg"),
    "mobilenet_v2, nchw": ("mobilenet_v2", "torch"),
    "mlp": ("mlp", "linalg"),
    "bert": ("bert", "linalg"),
}
LIMITS = ReadLimits(1800.0, 24 << 30)
TURNS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=sorted({name for name, _ in NETWORKS.values()}))
    parser.add_argument("--small", action="store_true", help="few layers of few channels")
    parser.add_argument("--execute", action="store_true", help="run them, which takes minutes")
    parser.add_argument("--rows", type=int, default=0, help="the longest block of products' rows")
    options = parser.parse_args()
    print(conditions())
    print("| model | packs | unpacks | that move | of weights | applied, s | error |")
    print("|---|---:|---:|---:|---:|---:|---|")
    for name, (model, spelling) in NETWORKS.items():
        if options.model in (None, model):
            module = spelled(MODELS[model](options.small), spelling).encode()
            print(row(name, module, Blocks(rows=options.rows), options.execute), flush=True)


def row(name: str, module: bytes, blocks: Blocks, execute: bool) -> str:
    """One line; the time is the fastest of some turns, for nothing but the script takes part."""
    plans = [pack_module(module, blocks, LIMITS) for _ in range(TURNS)]
    applied = min(plan.apply_s for plan in plans)
    found = plans[0].counts
    moves = found["packs"] + found["unpacks"] - found["reshapes"]
    told = executed(plans[0]) if execute else "not run"
    return (
        f"| {name} | {found['packs']} | {found['unpacks']} | {moves} | {found['weights']} "
        f"| {applied:.2f} | {told} |"
    )


def executed(plan: PackPlan) -> str:
    """The error of a network beside itself, or how it failed."""
    begin = time.perf_counter()
    proof = prove_packs(plan, limits=LIMITS)
    took = time.perf_counter() - begin
    if not proof.ok:
        return f"{proof.failure}: {proof.message.partition(chr(10))[0]}"
    return f"{proof.max_error:.2g}, allowed {proof.tolerance:.2g}; {took:.0f} s"


if __name__ == "__main__":
    main()
