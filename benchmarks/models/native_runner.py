"""Planned networks as they run here, and PyTorch's ways to run the same models, in turn.

    python -m benchmarks.models.native_runner resnet50 mobilenet_v2

Problems without a stored schedule are tuned first. Every result is compared with PyTorch's in f64.
A ratio is our median over another way's, both of the same rounds. The last rows are limits: plain
reads of the weights as they lie packed, in the same rounds, and all products of direct methods at
the peak of multiply-adds. `--parts` prints the time of each part.
"""

import argparse
import json
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.models.whole_models import Run, pytorch, target_of
from examples.models import MODELS, Graph
from examples.models.spellings import spelled
from tilewise.cli import main as tilewise
from tilewise.kernels.mlir.frontend.program import ModuleProgram
from tilewise.kernels.mlir.frontend.read import read_program
from tilewise.kernels.native.microbench import STREAMS, peak_gflops, reader
from tilewise.kernels.oracle.operands import Array, to_bf16
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.target import resolve
from tilewise.search.networks.loader.network import Network
from tilewise.search.networks.lowering.network import LoweredNetwork
from tilewise.search.networks.plan import Plan
from tilewise.search.networks.standalone.files import load_here
from tilewise.search.timing.measure import interleave

OURS = "this network"
ROUNDS = 25


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.models.native_runner")
    parser.add_argument("models", nargs="+", choices=MODELS, metavar="MODEL")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--trials", type=int, default=32, help="of what is not stored")
    parser.add_argument("--layouts", choices=("model", "all"), default="model")
    parser.add_argument("--cache", choices=("hot", "cold"), default="hot")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--one", action="store_true", help="also plan and run on one thread")
    parser.add_argument("--stored", action="store_true", help="also plan by stored times")
    parser.add_argument("--parts", action="store_true", help="print the time of each part")
    options = parser.parse_args()
    for name in options.models:
        graph = MODELS[name](options.small)
        networks = loaded(graph, options)
        compared(graph, networks, options.threads)
        if options.parts:
            parts(networks[OURS].network)


@dataclass(frozen=True)
class Loaded:
    """A network in this process, and what it was compiled from."""

    lowered: LoweredNetwork
    network: Network

    @classmethod
    def of(cls, plan: Plan, program: ModuleProgram) -> "Loaded":
        lowered = LoweredNetwork(plan, program)
        return cls(lowered, load_here(lowered, b""))


def loaded(graph: Graph, options: argparse.Namespace) -> dict[str, Loaded]:
    """A model tuned, planned and loaded."""
    with TemporaryDirectory() as folder:
        source = Path(folder) / f"{graph.name}.mlir"
        source.write_text(spelled(graph))
        given = ["plan", str(source), "-o", folder, "--trials", str(options.trials)]
        given += ["--layouts", options.layouts, "--cache", options.cache]
        given += ["--target", target_of(options.threads)]
        plan, program = planned(given), read_program(source.read_bytes())
        made = {OURS: Loaded.of(plan, program)}
        if options.one:
            made["one thread"] = Loaded.of(planned([*given, "--target", target_of(1)]), program)
        if options.stored:
            made["the same, stored times"] = Loaded.of(
                planned([*given, "--times", "stored"]), program
            )
        return made


def planned(arguments: list[str]) -> Plan:
    """What `tilewise` plans, by its arguments."""
    if tilewise(arguments) != 0:
        sys.exit(f"tilewise {' '.join(arguments)} failed")
    folder = arguments[arguments.index("-o") + 1]
    return Plan.from_json(json.loads((Path(folder) / "plan.json").read_text()))


def compared(graph: Graph, networks: dict[str, Loaded], threads: int) -> None:
    """Time a network beside PyTorch, and print a row for each way."""
    argument = graph.argument()
    given = to_bf16(argument) if graph.given.dtype == "bf16" else argument
    torch_runs, torch_results, expected = pytorch(graph, argument, threads)
    ours = {name: repeated(one.network) for name, one in networks.items()}
    reads = {"plain reads of weights": reading(networks[OURS].lowered)} if threads == 1 else {}
    runs = {**ours, **torch_runs, **reads}
    results = {name: one.network.run(given)[0] for name, one in networks.items()} | torch_results
    samples = interleave(list(runs.values()), ROUNDS, threads)
    times = {name: 1e3 * median(one.times) for name, one in zip(runs, samples, strict=True)}
    network = networks[OURS].lowered
    print(f"{graph.name}, {threads} threads, {network.plan.target}, {network.plan.cache}")
    for name, time in times.items():
        if name in reads:
            continue
        print(f"  {name:<24} {time:9.3f} ms  ours over it {times[OURS] / time:5.3f}  "
              f"error {apart(results[name], expected):.2g}", flush=True)  # fmt: skip
    for name in reads:
        print(f"  {name:<24} {times[name]:9.3f} ms")
    print(
        f"  {'as planned':<24} {network.plan.totals.chosen_us / 1e3:9.3f} ms, of it "
        f"{sum(one.time_us for one in network.plan.passes) / 1e3:.3f} in passes"
    )
    for dtype, (flops, peak) in products(network.plan).items():
        print(f"  {'products at the peak':<24} {flops / peak / 1e6:9.3f} ms  "
              f"{flops / 1e9:.2f} GFLOP of {dtype} at {peak:.0f} GFLOP/s", flush=True)  # fmt: skip
    placed, weights = network.placed, len(network.weights)
    print(f"  activations {placed.size / 2**20:.2f} MiB in one arena, {placed.apart / 2**20:.2f} "
          f"MiB apart; weights {weights / 2**20:.2f} MiB", flush=True)  # fmt: skip


def reading(network: LoweredNetwork) -> Run:
    """Plain reads of a network's weights, from end to end."""
    target, held = resolve(network.plan.target), network.weights
    steps = len(held) // (STREAMS * target.vector_bytes)
    read, address = reader(target, STREAMS), held.ctypes.data

    def run(repeat: int) -> None:
        for _ in range(repeat):
            read(address, steps)

    return run


def products(plan: Plan) -> dict[str, tuple[float, float]]:
    """Of each type the operations of all layers by direct methods, and the peak in GFLOP/s."""
    problems = [parse_problem(node.problem) for node in plan.nodes if node.problem is not None]
    flops = Counter[str]()
    for one in problems:
        flops[one.element.name] += one.flops
    target = resolve(plan.target)
    return {dtype: (float(many), peak_gflops(target, dtype)) for dtype, many in flops.items()}


def repeated(network: Network) -> Run:
    """So many runs of a network."""

    def run(repeat: int) -> None:
        for _ in range(repeat):
            network()

    return run


def apart(found: Array, expected: Array) -> float:
    """Rms of the difference over rms."""
    return float(np.sqrt(np.mean((found - expected) ** 2) / np.mean(expected**2)))


def parts(network: Network) -> None:
    """Print how long each part takes."""
    times = network.times(ROUNDS)
    total = sum(time_us for _, time_us in times)
    for label, time_us in times:
        print(f"  {time_us:9.1f} us  {100 * time_us / total:5.1f}%  {label}")


if __name__ == "__main__":
    main()
