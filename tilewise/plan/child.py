"""The process in which planned networks run: `python -m tilewise.plan.child`."""

import json
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from tilewise.errors import TilewiseError
from tilewise.kernels.errors import KernelsError
from tilewise.kernels.mlir.iree.runtime import LoadedModule, open_device
from tilewise.kernels.oracle.operands import Array
from tilewise.kernels.system.limited_child import reply_to_request, stage
from tilewise.kernels.system.typed_json import to_json
from tilewise.kernels.target import parse_target
from tilewise.model.child import declaration_of, deviation, entry_of
from tilewise.model.signature import HAL, random_array, types_of
from tilewise.plan.running import Ran
from tilewise.search.errors import NetworkError
from tilewise.search.networks.plan import Plan
from tilewise.search.networks.running.network import Network
from tilewise.search.timing.measure import interleave
from tilewise.search.timing.samples import Run

BUDGET_S = 30.0


def run_here(request: dict[str, Any]) -> dict[str, Any]:
    """Load, compare and time; or what is `refused` that a user should read."""
    try:
        return to_json(_ran(request))
    except (NetworkError, KernelsError, TilewiseError) as error:
        return {"refused": str(error)}


def _ran(request: dict[str, Any]) -> Ran:
    stage("load")
    source = Path(request["module"]).read_bytes()
    written = json.loads(Path(request["plans"]).read_text(encoding="utf-8"))
    networks = [Network.load(Plan.from_json(one), source) for one in written]
    threads = parse_target(networks[0].plan.target).threads
    device = open_device(threads)
    module = LoadedModule(Path(request["code"]).read_bytes(), device)
    entry = entry_of(module.functions(), None)
    takes, gives = types_of(declaration_of(module, entry, request["declarations"]))
    random = np.random.default_rng(0)
    arrays = [random_array(kind, random) for kind in takes]
    given = [(array, HAL[kind.element]) for array, kind in zip(arrays, takes, strict=True)]
    stage("compare")
    reference = LoadedModule(Path(request["reference"]).read_bytes(), device)
    expected = reference.results(entry, given)
    of_iree, overwrites = module.results_and_writes(entry, given)
    apart = [deviation(_results(network, arrays), expected, gives) for network in networks]
    stage("time")
    until = time.monotonic() + BUDGET_S
    runs = [*map(_repeated, networks), module.bind_raw(entry, given, len(gives))]
    *ours, its = interleave(runs, request["rounds"], threads, until=until)
    kept = min(range(len(ours)), key=lambda one: median(ours[one].times))
    network, others = networks[kept], [one for i, one in enumerate(ours) if i != kept]
    return Ran(
        kept, network.times(request["rounds"]), tuple(ours[kept].times), tuple(its.times),
        tuple(others[0].times) if others else (), max(apart),
        network.placed.size, network.placed.apart, len(network.memory.weights.bytes),
        deviation(of_iree, expected, gives), overwrites,
    )  # fmt: skip


def _results(network: Network, arrays: list[Array]) -> list[Array]:
    network.poison()
    return list(network.run(*arrays))


def _repeated(network: Network) -> Run:
    def run(repeat: int) -> None:
        for _ in range(repeat):
            network()

    return run


if __name__ == "__main__":
    reply_to_request(run_here)
