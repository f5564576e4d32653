"""Kills and freezes the processes of a farm at random while jobs run, and counts what is left.

    python -m tests.service.cluster.chaos --rounds 60 --postgresql

Each round sends SIGKILL or SIGSTOP to one process: the service, a driver, the scheduler, a worker,
the process that runs a job, or the database where that is a PostgreSQL, all of whose processes are
frozen at once. What is killed, or has ended because another was gone, is started again, as systemd
or Compose would; what is frozen goes on after a while.
"""

import argparse
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil

from tests.service.cluster.farm import Farm
from tests.service.cluster.tuners import STEADY
from tests.service.conftest import PROBLEM
from tests.service.processes import wait_until
from tilewise.kernels.problem import parse_problem
from tilewise.service.db import make_engine, make_sessions, models, reading
from tilewise.service.jobs.trial_store import SqlTrialStore

KINDS = ("service", "driver-1", "driver-2", "scheduler", "worker-1", "worker-2", "runner")
DATABASE = "postgresql"
NAMES = tuple(kind for kind in KINDS if kind != "runner")
FREEZE_S = 20.0
ENDING_S = 600.0


@dataclass(frozen=True)
class Plan:
    """What is done to a farm."""

    faults: Sequence[tuple[str, int]]  # the process and the signal of each round
    jobs: int = 6  # at once
    trials: int = 120  # of each job
    freeze_s: float = FREEZE_S
    pauses_s: tuple[float, float] = (1.0, 4.0)  # shortest and longest time between two rounds


@dataclass
class Report:
    """What is left of the jobs."""

    done: int = 0  # jobs
    asked: int = 0
    stored: int = 0  # trials
    budget: int = 0
    lost: int = 0  # trials that were acknowledged and are not stored
    twice: int = 0  # trials that were acknowledged more than once
    stuck: int = 0  # offers and running jobs that are left when all is over
    errors: list[str] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)  # signals to each process

    @property
    def is_whole(self) -> bool:
        is_done = (self.done, self.stored) == (self.asked, self.budget)
        return is_done and not (self.lost or self.twice or self.stuck)


def run(farm: Farm, plan: Plan, rng: random.Random, first: int = 100) -> Report:
    """Do what a plan says; `first` is the number of the first problem."""
    report, problems = Report(), {}
    for kind, sent in plan.faults:
        if not any(_is_open(farm, job) for job in problems):
            for _ in range(plan.jobs):
                number = first + len(problems)
                name = parse_problem(f"{PROBLEM},batch={number}").canonical
                problems[farm.ask(name, seed=STEADY, trials=plan.trials)] = name
        time.sleep(rng.uniform(*plan.pauses_s))
        farm.supervise()
        strike(farm, kind, sent, plan.freeze_s, rng)
        report.faults[f"{kind} {signal.Signals(sent).name}"] += 1
    wait_until(lambda: _have_ended(farm, problems), ENDING_S)
    _count(farm, problems, plan.trials, report)
    return report


def strike(farm: Farm, kind: str, sent: int, freeze_s: float, rng: random.Random) -> None:
    """Send one process a signal, and see to it that it or another goes on afterwards."""
    if kind == "runner":
        _strike_runner(farm, sent, freeze_s, rng)
    elif kind == DATABASE:
        assert farm.database is not None, "a farm on SQLite has no process to strike"
        if sent == signal.SIGKILL:
            farm.database.kill()
            farm.database.start()
        else:
            farm.database.freeze()
            time.sleep(freeze_s)
            farm.database.thaw()
    elif sent == signal.SIGKILL:
        farm.kill_and_start(kind)
    else:
        farm.send(kind, sent)
        time.sleep(freeze_s)
        farm.send(kind, signal.SIGCONT)


def _strike_runner(farm: Farm, sent: int, freeze_s: float, rng: random.Random) -> None:
    running = farm.runs()
    if not running:
        return
    try:
        chosen = rng.choice(running)
        chosen.send_signal(sent)
        if sent == signal.SIGSTOP:
            time.sleep(freeze_s)
            chosen.send_signal(signal.SIGCONT)
    except psutil.NoSuchProcess:  # its job ended, or was given to another
        return


def _have_ended(farm: Farm, jobs: Iterable[int]) -> bool:
    farm.supervise()
    return not any(_is_open(farm, job) for job in jobs)


def _is_open(farm: Farm, job: int) -> bool:
    """Whether a job waits or runs; also where nobody answers."""
    try:
        return farm.job(job)["state"] in ("queued", "running")
    except (httpx.HTTPError, KeyError, ValueError):
        return True


def _count(farm: Farm, problems: dict[int, str], trials: int, report: Report) -> None:
    engine = make_engine(farm.url)
    sessions = make_sessions(engine)

    def offers():
        with reading(sessions) as session:
            return session.query(models.Offer).count()

    wait_until(lambda: not offers(), 60)
    noted = Counter(farm.noted())
    for job_id, name in problems.items():
        stored = {trial.number for trial in SqlTrialStore(sessions, job_id).trials()}
        acknowledged = {int(line.split()[1]) for line in noted if line.startswith(f"{name} ")}
        with reading(sessions) as session:
            job = session.get_one(models.Job, job_id)
            report.done += job.state == "done"
            report.stuck += job.owner is not None
            report.errors += [f"job {job_id}: {job.error}"] if job.error else []
        report.asked += 1
        report.stored += len(stored)
        report.budget += trials
        report.lost += len(acknowledged - stored)
    report.twice += sum(count > 1 for count in noted.values())
    report.stuck += offers()
    engine.dispose()


@contextmanager
def _database():
    """A PostgreSQL of this program's own; its socket's path has to be short."""
    from benchmarks.surviving.server import Server

    with tempfile.TemporaryDirectory(prefix="pg") as folder, Server(Path(folder)) as started:
        yield started


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--jobs", type=int, default=6, help="at once")
    parser.add_argument("--freeze", type=float, default=FREEZE_S, metavar="SECONDS")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--logs", type=Path, help="folder for what the processes say")
    parser.add_argument("--postgresql", action="store_true", help="keep the jobs there, strike it")
    options = parser.parse_args(arguments)
    rng = random.Random(options.seed)
    kinds = (*KINDS, DATABASE) if options.postgresql else KINDS
    faults = [
        (rng.choice(kinds), rng.choice((signal.SIGKILL, signal.SIGSTOP)))
        for _ in range(options.rounds)
    ]
    folder = options.logs or Path(tempfile.mkdtemp(prefix="tilewise-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    server = _database() if options.postgresql else nullcontext()
    with server as database, closing(Farm(folder, NAMES, database)) as farm:
        farm.wait_for_workers(2)
        report = run(farm, Plan(faults, options.jobs, freeze_s=options.freeze), rng)
    for name, value in vars(report).items():
        sys.stdout.write(f"{name:8} {dict(value) if isinstance(value, Counter) else value}\n")
    sys.stdout.write(f"seconds  {time.monotonic() - began:.0f}\nlogs     {folder}\n")
    return 0 if report.is_whole else 1


if __name__ == "__main__":
    sys.exit(main())
