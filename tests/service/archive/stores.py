"""Stores that tests fill, copy and compare."""

import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy import select

from benchmarks.watching.suite_reports import reports
from tests.service import fakes
from tests.service.conftest import PROBLEM, TOOLCHAIN
from tilewise.kernels.problem import parse_problem, parse_range
from tilewise.kernels.range_schedule import RangeSchedule
from tilewise.search.ranges.result import RangeResult, SampleTimes
from tilewise.search.records import TrialRecord, TuneRequest, TuneResult, Winner
from tilewise.service.archive.container import Manifest
from tilewise.service.archive.export import Selection, export
from tilewise.service.archive.merging import Merged
from tilewise.service.archive.restore import restore
from tilewise.service.db import Sessions, make_engine, models, reading, tokens, writing
from tilewise.service.db.base import Base, now
from tilewise.service.db.rows import toolchain_row
from tilewise.service.db.session import make_sessions
from tilewise.service.host.machine import MachineInfo, examine_here
from tilewise.service.host.process_identity import me
from tilewise.service.jobs import lease, queue
from tilewise.service.jobs.model_jobs import ended_job
from tilewise.service.jobs.queue import Submitter, new_job
from tilewise.service.results import history, suites
from tilewise.service.results.ranges import store_range
from tilewise.service.runs.sql import SqlRunStore
from tilewise.service.workers.job_run import run_job

COLD = "matmul:m=8,n=8,k=8,dtype=bf16"
IMAGE = "conv2d:n=1,h=8,w=8,ci=4,co=4,kh=3,kw=3,dtype=f32"
HOST = "birch"

EMPTY = zlib.compress(b"module {}")

Rows = dict[str, list[dict[str, Any]]]


@cache
def here() -> MachineInfo:
    """This machine under another name."""
    return replace(examine_here(), host=HOST)


@dataclass(frozen=True)
class Search:
    """One search, as tests ask for it and as it ends."""

    problem: str = PROBLEM
    gflops: Sequence[float] = (10.0, 11.0, 12.0, 13.0)
    request: dict[str, Any] = field(default_factory=dict)
    parts: dict[str, Any] = field(default_factory=dict)
    toolchain: str = TOOLCHAIN


def ask(sessions: Sessions, search: Search) -> int:
    """Queue a search; its job."""
    with writing(sessions) as session:
        request = TuneRequest(trials=len(search.gflops), **search.request)
        problem = parse_problem(search.problem)
        made = queue.create_or_join(session, problem, here().target, request, search.toolchain)
        assert made.job is not None
        return made.job.id


def claim(sessions: Sessions, job: int) -> SqlRunStore:
    """Claim a job for this process."""
    with writing(sessions) as session:
        held = lease.claim_one(session, job, me())
    assert held is not None
    return SqlRunStore(sessions, held)


def run(sessions: Sessions, job: int, search: Search, state: str = "done") -> None:
    """Run a job to its end."""
    faked = {"tuner": _tuner(search.gflops), "prover": fakes.prove, "machine": here()}
    assert run_job(claim(sessions, job), **{**faked, **search.parts}).state == state


def searched(sessions: Sessions, search: Search | None = None) -> int:
    """A job that is done."""
    wanted = search or Search()
    job = ask(sessions, wanted)
    run(sessions, job, wanted)
    return job


def _tuner(gflops: Sequence[float]) -> Any:
    def tune(_problem, _target, request, store, **_hooks):
        done = {record.number for record in store.trials()}
        for number, speed in enumerate(gflops):
            if number not in done:
                store.add(trial(number, speed))
        records = store.trials()
        timed = [record for record in records if record.measurement]
        best = max(timed, key=lambda one: one.measurement.gflops)
        found = Winner(best.schedule, best.measurement, 100.0, (), {"A": 64}, 21, 6, 2)
        peers = {"openblas": fakes.measurement(9.0)} if request.peers else {}
        return TuneResult(found, tuple(records), 0.5, True, peers)

    return tune


def trial(number: int, gflops: float) -> TrialRecord:
    return fakes.trial(number, gflops=gflops) if gflops else fakes.failed_trial(number)


def cut_off(sessions: Sessions, search: Search, after: int) -> int:
    """A job that runs and has stored some of its trials."""
    job = ask(sessions, search)
    trials = claim(sessions, job).trials
    for number, speed in enumerate(search.gflops[:after]):
        trials.add(trial(number, speed))
    return job


def go_on(sessions: Sessions, job: int, search: Search) -> None:
    """Take a job from the process that runs it, and run it to its end."""
    with writing(sessions) as session:
        row = session.get_one(models.Job, job)
        assert lease.release(session, lease.Lease(job, row.owner or "", row.epoch))
    run(sessions, job, search)


def fill(sessions: Sessions) -> None:
    """One of everything that a store can have, all of it ended."""
    searched(sessions, Search(request={"peers": True}))
    wrong = {"prover": fakes.prove_wrong}
    searched(sessions, Search(COLD, (20.0, 0.0, 21.0), {"cache": "cold"}, wrong))
    unapplied = {"prover": fakes.prove_unapplied}
    searched(sessions, Search(IMAGE, (0.0, 30.0), {"seconds": 1.5, "seed": 7}, unapplied))
    cancelled = ask(sessions, Search("matmul:m=9,n=9,k=9,dtype=f32"))
    with writing(sessions) as session:
        job = queue.cancel(session, cancelled)
        job.kind, job.spread = "recheck", 2
        told = next(reports(here().target, (TOOLCHAIN,), datetime.now(UTC), 1))
        suites.keep(session, told["report"])
        session.add(_model(session))
        add_past(session)
        thinned = session.scalars(select(models.Trial).order_by(models.Trial.id)).first()
        assert thinned is not None
        thinned.samples_taken = 40
        machine = session.scalars(select(models.Machine)).one()
        machine.peaks, machine.peaks_at = {"f32": 140.0}, datetime.now(UTC)
    add_range(sessions)
    keep_secrets(sessions)


def add_past(session: Any) -> None:
    """A result that was measured and not kept, of the first job."""
    row = session.scalars(select(models.Schedule).order_by(models.Schedule.id)).first()
    assert row is not None
    same = {c.key: getattr(row, c.key) for c in models.Schedule.__table__.columns if c.key != "id"}
    speed = {"gflops": 5.0, "low": 4.0, "high": 9.0}
    of = {"problem": row.problem, "toolchain": row.toolchain}
    earlier = same | speed | of | {"created_at": datetime(2026, 1, 31, tzinfo=UTC)}
    history.add_unkept(session, models.Schedule(**earlier))


def fill_whole(sessions: Sessions) -> None:
    """The same, and searches that failed, that wait, that run, and of another toolchain."""
    fill(sessions)
    fruitless = Search("matmul:m=5,n=5,k=5,dtype=f64", (0.0,), {}, {"tuner": fakes.fruitless_tune})
    run(sessions, ask(sessions, fruitless), fruitless, "failed")
    searched(sessions, Search(toolchain="an older toolchain"))
    ask(sessions, Search("matmul:m=10,n=9,k=9,dtype=f32", request={"seconds": 1.5}))
    running = cut_off(sessions, Search("matmul:m=11,n=9,k=9,dtype=f32"), 2)
    with writing(sessions) as session:
        job = session.get_one(models.Job, running)
        job.owner, job.host = f"{HOST}:1:1", HOST
        offered = {"digest": "1" * 64, "driver": f"{HOST}:2:2", "worker": "tcp://127.0.0.1:1"}
        for row in session.scalars(select(models.Job).where(models.Job.host.is_not(None))):
            row.host = HOST
        session.add(models.Offer(job_id=running, owner=job.owner, epoch=job.epoch, **offered))
        put_out = {"epoch": job.epoch, "number": 2, "asked": "{}", "taken_by": "1" * 64}
        session.add(models.Candidate(job_id=running, **put_out))
        plan = _plan(session, running)
        session.add(plan)
        session.flush()
        session.add(models.PlanCompletion(plan_id=plan.id, number=0, part=0))


RANGE = "matmul:m=1..9,n=48,k=32,dtype=f32"


def add_range(sessions: Sessions, best_us: float = 0.5, first: int = 0) -> None:
    """A range that was tuned: two variants and three samples; `best_us` is for each row of A."""
    problems = parse_range(RANGE)
    schedules = fakes.schedule(first), fakes.schedule(first + 1)
    choice = RangeSchedule(problems, schedules, (0, 0, 0, 1, 1, 1, 1, 1, 1))
    samples = tuple(
        SampleTimes((size,), schedules[0].hash, best_us * size, (best_us * size, 0.75 * size))
        for size in (1, 4, 9)
    )
    with writing(sessions) as session:
        work = problems, here().target, TuneRequest(trials=2), TOOLCHAIN
        made = queue.create_or_join(session, *work, again=True)
        assert made.job is not None
        made.job.state, made.job.finished_at, made.job.complete = "done", now(), True
        machine = session.scalars(select(models.Machine)).first()
        assert machine is not None
        store_range(session, made.job, RangeResult(choice, ((1,), (2,)), samples), machine.id)


SECRETS = ("alice", "request-of-alice", "key-of-alice", "process-of-alice")


def keep_secrets(sessions: Sessions) -> None:
    """What no archive may tell: tokens, and who asked for what by which request."""
    with writing(sessions) as session:
        tokens.create(session, SECRETS[0], "admin", None)
        token = session.scalars(select(models.Token)).one()
        for job in session.scalars(select(models.Job)):
            job.token_id, job.request_id, job.owner = token.id, SECRETS[1], SECRETS[3]
        machine = session.scalars(select(models.Machine)).first()
        known = {"machine": machine, "targets": [], "toolchain": "", "capacity": 1}
        session.add(models.Worker(owner=SECRETS[3], **known))
        request = {"subject": f"token:{token.id}", "key": SECRETS[2], "request": "0" * 64}
        session.add(models.IdempotencyKey(**request))


def _asked(session: Any) -> tuple[TuneRequest, str, int, Submitter]:
    toolchain = toolchain_row(session, TOOLCHAIN)
    return TuneRequest(trials=4), here().target, toolchain.id, Submitter()


def _model(session: Any) -> models.Network:
    return models.Network(
        job=ended_job(*_asked(session), now()),
        sha256="ab" * 32,
        problems=[{"problem": PROBLEM, "count": 2, "where": ["main"]}],
        skipped=[{"op": "linalg.softmax", "reason": "no problem", "where": "main"}],
    )


def _plan(session: Any, job: int) -> models.Plan:
    return models.Plan(
        job=new_job(*_asked(session), kind="model"),
        sha256="cd" * 32,
        name="model.mlir",
        layouts="all",
        problems=[{"problem": PROBLEM, "count": 2, "where": ["main"], "job": job}],
        variants=[],
        skipped=[],
        source=models.PlanSource(graph={"nodes": [], "tensors": []}, module=EMPTY),
    )


def exported(sessions: Sessions, path: Path, selection: Selection | None = None) -> Manifest:
    """Write an archive."""
    return export(sessions, path, selection or Selection(), "tilewise of the tests")


def restored_in_vain(sessions: Sessions, archive: Path) -> Merged:
    """Import an archive of what a store has already: nothing changes."""
    before = rows_of(sessions)
    merged = restore(sessions, archive)
    assert not merged.added and rows_of(sessions) == before
    return merged


def moved(source: Sessions, target: Sessions, path: Path, **how: Any) -> Merged:
    """Export one store and import it in another."""
    exported(source, path)
    return restore(target, path, **how)


@contextmanager
def opened_store(url: str) -> Iterator[Sessions]:
    """A database on the newest schema."""
    engine = make_engine(url)
    yield make_sessions(engine)
    engine.dispose()


def execute(sessions: Sessions, statement: str) -> None:
    """Run one SQL statement."""
    with sessions.kw["bind"].begin() as connection:
        connection.exec_driver_sql(statement)


def rows_of(sessions: Sessions) -> Rows:
    """Every row of every table, as the columns have it."""
    with reading(sessions) as session:
        return {
            name: [dict(row) for row in session.execute(select(table)).mappings()]
            for name, table in sorted(Base.metadata.tables.items())
        }


def trials_of(sessions: Sessions) -> list[tuple[Any, ...]]:
    """Every trial by what it was and when it ended, whatever its job is called."""
    found = rows_of(sessions)["trials"]
    return sorted((row["created_at"], row["hash"], row["gflops"] or 0.0) for row in found)


def best_of(sessions: Sessions) -> dict[str, tuple[Any, ...]]:
    """The best schedule of each problem: its speed, its budget and its trials' job."""
    with reading(sessions) as session:
        return {
            row.problem.canonical: (row.gflops, row.hash, row.budget, row.created_at)
            for row in session.scalars(select(models.Schedule))
        }
