"""The process in which a planned network runs: `python -m tilewise.plan.child`."""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from kernels.errors import KernelsError
from kernels.mlir.iree.runtime import LoadedModule, open_device
from kernels.system.limited_child import reply_to_request, stage
from kernels.system.typed_json import to_json
from kernels.target import parse_target
from search.errors import NetworkError
from search.networks.plan import Plan
from search.networks.running.network import Network
from search.timing.interleave import interleave
from tilewise.errors import TilewiseError
from tilewise.model.child import declaration_of, deviation, entry_of
from tilewise.model.signature import HAL, random_array, types_of
from tilewise.plan.running import Ran

BUDGET_S = 30.0


def run_here(request: dict[str, Any]) -> dict[str, Any]:
    """Load, compare and time; or what is `refused` that a user should read."""
    try:
        return to_json(_ran(request))
    except (NetworkError, KernelsError, TilewiseError) as error:
        return {"refused": str(error)}


def _ran(request: dict[str, Any]) -> Ran:
    stage("load")
    plan = Plan.from_json(json.loads(Path(request["plan"]).read_text(encoding="utf-8")))
    network = Network.load(plan, Path(request["module"]).read_bytes())
    threads = parse_target(plan.target)[1]
    module = LoadedModule(Path(request["code"]).read_bytes(), open_device(threads))
    entry = entry_of(module.functions(), None)
    takes, gives = types_of(declaration_of(module, entry, {}))
    random = np.random.default_rng(0)
    arrays = [random_array(kind, random) for kind in takes]
    given = [(array, HAL[kind.element]) for array, kind in zip(arrays, takes, strict=True)]
    stage("compare")
    network.poison()
    results = list(network.run(*arrays))
    apart = deviation(results, module.results(entry, given), gives)
    stage("time")

    def ours(repeat: int) -> None:
        for _ in range(repeat):
            network()

    until = time.monotonic() + BUDGET_S
    runs = [ours, module.bind_raw(entry, given, len(gives))]
    mine, its = interleave(runs, request["rounds"], threads, until=until)
    return Ran(
        network.times(request["rounds"]), tuple(mine.times), tuple(its.times), apart,
        network.placed.size, network.placed.apart, len(network.memory.weights.bytes),
    )  # fmt: skip


if __name__ == "__main__":
    reply_to_request(run_here)
