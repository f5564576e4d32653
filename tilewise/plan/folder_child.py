"""The process that runs a written folder beside the network that it was made of."""

import importlib.util
import json
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from tilewise.kernels.errors import KernelsError
from tilewise.kernels.oracle.operands import Array, to_bf16
from tilewise.kernels.system.limited_child import reply_to_request, stage
from tilewise.kernels.system.typed_json import to_json
from tilewise.kernels.target import parse_target
from tilewise.plan.folder import Beside
from tilewise.search.errors import NetworkError
from tilewise.search.networks.plan import Plan
from tilewise.search.networks.running.network import Network
from tilewise.search.timing.measure import interleave
from tilewise.search.timing.samples import Run

BUDGET_S = 30.0


def beside(request: dict[str, Any]) -> dict[str, Any]:
    """Load both, compare them bit by bit, and time them in turn."""
    try:
        return to_json(_beside(request))
    except (NetworkError, KernelsError) as error:
        return {"refused": str(error)}


def _beside(request: dict[str, Any]) -> Beside:
    stage("load")
    folder = Path(request["folder"])
    plan = Plan.from_json(json.loads((folder / "plan.json").read_text(encoding="utf-8")))
    network = Network.load(plan, Path(request["module"]).read_bytes())
    alone = _imported(folder).load()
    stage("compare")
    random = np.random.default_rng(0)
    arguments = [_drawn(random, held) for held in network.inputs]
    network.poison()
    expected, found = network.run(*arguments), alone.run(*arguments)
    again = alone.run(*arguments)
    is_equal = all(
        one.tobytes() == two.tobytes() == three.tobytes()
        for one, two, three in zip(expected, found, again, strict=True)
    )
    stage("time")
    until = time.monotonic() + BUDGET_S
    runs = [_repeated(alone), _repeated(network)]
    mine, its = interleave(runs, request["rounds"], parse_target(plan.target).threads, until=until)
    return Beside(is_equal, tuple(mine.times), tuple(its.times))


def _imported(folder: Path) -> ModuleType:
    """The folder as a package, wherever it lies."""
    place = folder / "__init__.py"
    found = importlib.util.spec_from_file_location(
        "tilewise_folder", place, submodule_search_locations=[str(folder)]
    )
    assert found is not None
    assert found.loader is not None
    sys.modules["tilewise_folder"] = made = importlib.util.module_from_spec(found)
    found.loader.exec_module(made)
    return made


def _drawn(random: np.random.Generator, held: Array) -> Array:
    """An argument at random, as of random numbers where it is bf16."""
    if held.dtype.kind == "i":
        return random.integers(-4, 5, held.shape).astype(held.dtype)
    numbers = random.standard_normal(held.shape).astype(np.float32)
    return to_bf16(numbers) if held.dtype == np.uint16 else numbers.astype(held.dtype)


def _repeated(network: Any) -> Run:
    def run(repeat: int) -> None:
        for _ in range(repeat):
            network()

    return run


if __name__ == "__main__":
    reply_to_request(beside)
