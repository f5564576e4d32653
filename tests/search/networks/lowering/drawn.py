"""Plans whose schedules are drawn at random, and models computed in f64 to compare with."""

from random import Random

import numpy as np

from examples.models.graph import Array, Graph
from examples.models.spellings import spelled
from tilewise.kernels.mlir.frontend.program import ModuleProgram
from tilewise.kernels.mlir.frontend.read import read_program
from tilewise.kernels.oracle.operands import to_bf16
from tilewise.kernels.problem import Accuracy, parse_problem
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.target import Target, detect
from tilewise.search.networks.costs import Timed, algorithm_of
from tilewise.search.networks.loader.network import Network
from tilewise.search.networks.lowering.memory import poison_activations
from tilewise.search.networks.lowering.network import LoweredNetwork
from tilewise.search.networks.plan import Plan
from tilewise.search.networks.planning import Passes, planned
from tilewise.search.networks.request import PlanRequest
from tilewise.search.networks.standalone.files import load_here
from tilewise.search.networks.variants import TensorLayout
from tilewise.search.space.space import Space


class Drawn:
    """Random times of random schedules (`tilewise.search.networks.costs.LayerTimes`)."""

    def __init__(self, target: Target, random: Random, copy_us: float) -> None:
        self._target, self._random, self._copy_us = target, random, copy_us
        self._known: dict[str, tuple[Timed, ...]] = {}

    def schedules(self, problem: str) -> tuple[Timed, ...]:
        if problem not in self._known:
            space = Space(parse_problem(problem), self._target)
            drawn = (space.schedule(space.draw(self._random)) for _ in range(200))
            schedule = next(one for one in drawn if space.why_illegal(one) is None)
            self._known[problem] = (timed(schedule, self._random.uniform(1, 9)),)
        return self._known[problem]

    def conversion_us(self, shape, dtype: str, made: TensorLayout, to: TensorLayout) -> float:
        assert made != to
        assert max((*made.order, *to.order), default=0) < len(shape)
        return self._copy_us


def timed(schedule: Schedule, time_us: float) -> Timed:
    """A schedule as a plan has it."""
    steps = tuple(schedule.to_json())
    return Timed(algorithm_of(schedule), schedule.hash, steps, time_us)


def program_of(graph: Graph, spelling: str) -> ModuleProgram:
    """A model as something to run."""
    return read_program(spelled(graph, spelling).encode())


def plan_of(
    program: ModuleProgram, seed: int, threads: int = 1, copy_us: float = 0.5,
    passes: Passes | None = None, accuracy: Accuracy = "standard",
) -> Plan:  # fmt: skip
    """A plan by times at random."""
    target = detect().with_threads(threads)
    costs = Drawn(target, Random(seed), copy_us)
    request = PlanRequest(target=target.canonical, accuracy=accuracy, name="drawn")
    return planned(program.outline.graph, costs, request, passes)


def loaded(plan: Plan, program: ModuleProgram) -> Network:
    """A plan's network in this process."""
    return load_here(LoweredNetwork(plan, program), b"a module")


def labels(network: Network) -> list[str]:
    """What its parts are."""
    return [part["label"] for part in network.about["parts"]]


def computed(network: Network, graph: Graph, spelling: str, argument: Array) -> Array:
    """What a network makes of a model's argument, in memory that was poisoned before."""
    poison_activations(network)
    is_first = spelling == "torch" and argument.ndim == 4
    given = argument.transpose(0, 3, 1, 2) if is_first else argument
    given = to_bf16(given) if graph.given.dtype == "bf16" else given
    (result,) = network.run(np.ascontiguousarray(given))
    return result


def apart(found: Array, expected: Array) -> float:
    """Relative rms deviation."""
    return float(np.sqrt(np.mean((found - expected) ** 2) / np.mean(expected**2)))
