"""Plans in the database, and pools that make them with `tests.service.plans.makers`."""

from collections.abc import Callable, Iterator

import pytest

from kernels.mlir.frontend.graph import Graph, Node, Tensor, Use
from kernels.mlir.frontend.imported import Arrangement, Occurrence
from search.records import TuneRequest
from service.db import Sessions, models, reading, writing
from service.host.machine import MachineInfo
from service.jobs.queue import Submitter
from service.plans import asked
from service.plans.asked import Wanted
from service.workers.pool import Pool, Work
from tests.service.conftest import PROBLEM, TOOLCHAIN
from tests.service.plans.makers import LOG

WHOLE = tuple(Arrangement((0, 1), shape, False) for shape in ((64, 32), (32, 48), (64, 48)))
GRAPH = Graph(
    (
        Node(
            "contraction", "linalg.matmul", "main",
            (Use(0, (64, 32), "A"), Use(1, (32, 48), "B")), (Use(2, (64, 48), "C"),),
            Occurrence(PROBLEM, "linalg.matmul", "main", *WHOLE, False, ()), 1,
        ),
    ),
    (
        Tensor((64, 32), "f32", True, False), Tensor((32, 48), "f32", True, False),
        Tensor((64, 48), "f32", False, True),
    ),
)  # fmt: skip


@pytest.fixture
def plan(sessions: Sessions, machine: MachineInfo) -> Callable[..., int]:
    """Asks for a plan of one matmul, and gives its number."""

    def make(toolchain: str = TOOLCHAIN) -> int:
        module = asked.compressed(b"module {}")
        request = TuneRequest(trials=4)
        wanted = Wanted("ab" * 32, "one.mlir", module, GRAPH, "all", machine.target, request)
        with writing(sessions) as session:
            return asked.ask(session, wanted, toolchain, Submitter()).id

    return make


@pytest.fixture
def look(sessions: Sessions) -> Callable[[int], models.Plan]:
    """Reads a plan as it is now, its plan and its module too."""

    def read(number: int) -> models.Plan:
        of_run = models.Plan.plan, models.Plan.module, models.Plan.graph, models.Plan.script
        with reading(sessions) as session:
            return asked.get(session, number, *of_run)

    return read


@pytest.fixture
def start(
    sessions: Sessions,
    url: str,
    machine: MachineInfo,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[..., Pool]]:
    """Starts a pool with a fake search and a maker of plans; stops it after the test."""
    log = tmp_path_factory.mktemp("made") / "made.txt"
    log.touch()
    monkeypatch.setenv(LOG, str(log))
    started: list[Pool] = []

    def make(maker: str = "make", workers: int = 1) -> Pool:
        arguments = ("--tuner=tests.service.fakes:tune", "--prover=tests.service.fakes:prove")
        of_plans = (f"--maker=tests.service.plans.makers:{maker}",)
        work = Work(machine.targets, TOOLCHAIN, workers, arguments, of_plans)
        started.append(Pool(sessions, url, work, poll_s=0.05))
        started[-1].start()
        return started[-1]

    yield make
    for pool in started:
        pool.stop()
