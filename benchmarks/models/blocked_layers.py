"""What channels in blocks gain: `python -m benchmarks.models.blocked_layers MODEL.mlir`.

`tilewise plan MODEL.mlir` tunes the layers first. Each convolution that blocks are offered for is
timed plain and in blocks, by stored schedules and by those that are changed to fit blocks, with
weights that other layers displace. Then the model is planned without blocks and with them,
and both plans run in turn.
"""

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from tilewise.backends.choose import open_backend
from tilewise.backends.costs import StoredCosts
from tilewise.kernels.channel_blocks import PLAIN, Blocks
from tilewise.kernels.mlir.frontend.graph import Graph
from tilewise.kernels.mlir.frontend.read import read_graph
from tilewise.kernels.mlir.frontend.weights import read_program
from tilewise.kernels.target import resolve
from tilewise.search.networks.costing.retimed import Retimed, weights_bytes
from tilewise.search.networks.costs import RETIMED, Timed
from tilewise.search.networks.layouts import Layout
from tilewise.search.networks.plan import Plan
from tilewise.search.networks.planning import Named, planned
from tilewise.search.networks.running.network import Network
from tilewise.search.networks.variants import BLOCKS, in_channel_blocks
from tilewise.search.timing.interleave import interleave
from tilewise.search.timing.samples import Run

ROUNDS = 25


@dataclass
class WithoutBlocks:
    """Costs that are asked for no blocks (`tilewise.search.networks.costs.Costs`)."""

    costs: Retimed

    def schedules(self, problem: str) -> tuple[Timed, ...]:
        return self.costs.schedules(problem)

    def conversion_us(
        self, shape: tuple[int, ...], dtype: str, made: Layout, wanted: Layout
    ) -> float:
        return self.costs.conversion_us(shape, dtype, made, wanted)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.models.blocked_layers")
    parser.add_argument("model", type=Path, metavar="MODEL.mlir")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--db", help="default: as of tilewise")
    parser.add_argument("--plans-only", action="store_true", help="no table of layers")
    options = parser.parse_args()
    target = resolve("host").with_threads(options.threads)
    module = options.model.read_bytes()
    graph = read_graph(module)
    with open_backend(None, options.db, None) as backend:
        stored = StoredCosts(backend, target.canonical, "hot", most=RETIMED)
        costs = Retimed(stored, target, weights_bytes(graph))
        if not options.plans_only:
            layers(graph, costs)
        plans(graph, costs, module, Named(options.model.name, target.canonical, "hot"))


def layers(graph: Graph, costs: Retimed) -> None:
    """A row for each problem: plain, and over that in blocks on either side."""
    print("problem", "plain us", *(f"{one.a}>{one.c}" for one in BLOCKS), sep=" | ")
    for problem, offered in offers(graph).items():
        plain = fastest(costs.schedules(problem))
        if plain is None:
            continue
        times = [fastest(costs.in_blocks(problem, one)) if one in offered else None
                 for one in BLOCKS]  # fmt: skip
        cells = ("-" if one is None else f"{one / plain:.3f}" for one in times)
        print(problem, f"{plain:.1f}", *cells, sep=" | ", flush=True)


def fastest(some: tuple[Timed, ...]) -> float | None:
    return min((one.time_us for one in some), default=None)


def offers(graph: Graph) -> dict[str, set[Blocks]]:
    """Blocks that are offered, by problem."""
    found: dict[str, set[Blocks]] = {}
    for node in graph.nodes:
        for variant in in_channel_blocks(node, graph) if node.found is not None else ():
            assert variant.problem is not None
            assert variant.blocks != PLAIN
            found.setdefault(variant.problem, set()).add(variant.blocks)
    return found


def plans(graph: Graph, costs: Retimed, module: bytes, named: Named) -> None:
    """Plans without blocks and with them, chosen by the same times and run in turn."""
    without = planned(graph, WithoutBlocks(costs), named)
    began = time.monotonic()
    with_blocks = planned(graph, costs, named)
    timed = time.monotonic()
    planned(graph, costs, named)  # all times are known
    print(f"blocks took {timed - began:.1f} s, the choice {time.monotonic() - timed:.2f} s of that")
    tell("without blocks", without)
    tell("with blocks", with_blocks)
    program = read_program(module)
    networks = [Network(one, program) for one in (without, with_blocks)]
    argument = np.random.default_rng(0).standard_normal(networks[0].inputs[0].shape, np.float32)
    results = [one.run(argument)[0] for one in networks]
    apart = float(np.abs(results[0] - results[1]).max() / np.abs(results[0]).max())
    if not apart < 1e-4:
        sys.exit(f"the results of the plans are {apart:.1e} apart")
    samples = interleave([repeated(one) for one in networks], ROUNDS, costs.target.threads)
    first, second = (np.array(one.times) for one in samples)
    print(f"run: {1e3 * median(first):.3f} ms and {1e3 * median(second):.3f} ms, ratio "
          f"{median(second / first):.3f}, quartiles {np.percentile(second / first, [25, 75])}, "
          f"results {apart:.1e} apart")  # fmt: skip


def tell(name: str, plan: Plan) -> None:
    laid = [use.layout for node in plan.nodes if node.problem for use in node.makes]
    told = {layout.name for layout in laid if layout.block}
    print(f"{name}: planned {plan.totals.chosen_us:.1f} us, plain {plan.totals.plain_us:.1f}, "
          f"{len(plan.conversions)} copies, {sum(one.block > 0 for one in laid)} of {len(laid)} "
          f"layers make blocks: {', '.join(sorted(told)) or 'none'}")  # fmt: skip


def repeated(network: Network) -> Run:
    """So many runs of a network."""

    def run(repeat: int) -> None:
        for _ in range(repeat):
            network()

    return run


if __name__ == "__main__":
    main()
