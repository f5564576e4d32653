"""A database as a team has it after two weeks, of any size: what dashboards are measured on.

`populate` fills an empty one by plain inserts, the same for the same numbers but for the moments,
which count back from now. The service serves what it makes: rows have their digests.

| of the jobs | is |
|---|---|
| one in 4 | for the older toolchain, of which the newer one's result is up to 8% faster or slower |
| one in 30 or so | goes on from another's trials: it begins with copies of half of them |
| one in 50 | failed, every other one by three crashes |
| those that another went on from | have a result in the history |
| the last 20 and the 4 before | queued; running, with half of their trials (fewer of few jobs) |
| 8 more | of ranges, for both toolchains, without trials of their own |
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from itertools import islice
from random import Random
from typing import Any

from sqlalchemy import Connection, insert
from sqlalchemy.orm import Session

from benchmarks.watching.suite_reports import reports
from tilewise.kernels.problem import Conv2d, Matmul, Problem, ProblemRange, parse_range
from tilewise.kernels.range_schedule import RangeSchedule
from tilewise.kernels.schedule import Register, Schedule, Unroll
from tilewise.search.ranges.result import RangeResult, SampleTimes
from tilewise.search.ranges.samples import sample_sizes
from tilewise.service.db import models
from tilewise.service.db.base import Base, now
from tilewise.service.db.trials import pack_samples
from tilewise.service.results import suites
from tilewise.service.results.integrity import proof_digest, result_digest
from tilewise.service.results.ranges import family_of
from tilewise.service.results.stored import ResultKey

Row = dict[str, Any]

SPAN = timedelta(days=14)
TOOLCHAINS = ("tilewise 1", "tilewise 2")
HOSTS = ("alder", "birch", "cedar")
CPU, PEAK = "znver4", 140.0
TARGET = f"cpu:{CPU},threads=1"
QUEUED, RUNNING, RANGES = 20, 4, 4
ORIGINS = ("prior", "prior", "transfer", "surrogate", "surrogate", "surrogate")
FAILURES = ("compile", "timeout", "crash", "wrong")
ROWS_AT_ONCE = 10_000


@dataclass(frozen=True)
class Sizes:
    """How many problems there are, and trials in all."""

    problems: int = 2_000
    trials: int = 100_000


@dataclass(frozen=True)
class Planned:
    """A job before its rows are made.

    Attributes:
        number: of the job, from 1 on.
        problem: number of its problem, from 1 on.
        toolchain: 1 for the older one, 2 for the newer one.
        begins: when it was asked for, which is when it began.
        trials: how many it has.
        state: as the column of the job.
        source: the job whose trials it begins with.
    """

    number: int
    problem: int
    toolchain: int
    begins: datetime
    trials: int
    state: str
    source: "Planned | None" = None
    seconds_a_trial: float = field(default=2.0)

    @property
    def copies(self) -> int:
        """Of its trials, those that another job timed."""
        return 0 if self.source is None else self.trials // 2

    def ended(self, number: int) -> datetime:
        """When a trial was stored."""
        if number < self.copies and self.source is not None:
            return self.source.ended(number)
        return self.begins + timedelta(seconds=self.seconds_a_trial * (number - self.copies + 1))


@cache
def schedule(number: int) -> Schedule:
    """The schedule of a trial, another one for each number."""
    return Schedule((Register(number % 14 + 1, 16), Unroll(number // 14 + 1)))


def problem(number: int) -> Problem:
    """A problem for each number: every fifth one a convolution."""
    if number % 5 == 0:
        return Conv2d(n=1, h=56, w=56, ci=number, co=64, kh=3, kw=3, pad=1, dtype="f32")
    return Matmul(m=number, n=64, k=64, dtype="f32" if number % 2 else "bf16")


def problem_range(number: int) -> ProblemRange:
    """A range for each number."""
    return parse_range(f"matmul:m=1..{16 * number},n=64,k=64,dtype=f32")


def plan(sizes: Sizes, end: datetime) -> list[Planned]:
    """The jobs, in the order in which they were asked for."""
    early = sizes.problems * 3 // 4
    wanted = [(number, 1, False) for number in range(4, sizes.problems + 1, 4)]
    wanted += [(number, 2, False) for number in range(1, early + 1)]
    wanted += [(number, 2, True) for number in range(20, early + 1, 20)]
    wanted += [(number, 2, False) for number in range(early + 1, sizes.problems + 1)]
    each = max(4, sizes.trials // len(wanted))
    apart = SPAN / (len(wanted) + 1)
    made: dict[tuple[int, int], Planned] = {}
    jobs = []
    for index, (number, toolchain, goes_on) in enumerate(wanted):
        source = made.get((number, toolchain)) if goes_on else None
        state = _state(index, len(wanted), goes_on=goes_on)
        begins = end - SPAN + apart * index
        trials = {"queued": 0, "running": each // 2}.get(state, each)
        if state == "running":
            begins = end - timedelta(seconds=2.0 * (trials + 1))
        job = Planned(index + 1, number, toolchain, begins, trials, state, source)
        made.setdefault((number, toolchain), job)
        jobs.append(job)
    return jobs


def _state(index: int, of: int, *, goes_on: bool) -> str:
    queued, running = min(QUEUED, of // 10), min(RUNNING, of // 20)
    if of - index <= queued:
        return "queued"
    if of - index <= queued + running:
        return "running"
    return "failed" if index % 50 == 7 and not goes_on else "done"


def populate(connection: Connection, sizes: Sizes, end: datetime | None = None) -> list[Planned]:
    """Fill an empty database on the newest schema; the jobs that it has then.

    Args:
        connection: in a transaction that writes.
        sizes: at least 20 problems.
        end: when everything has happened; now, unless told.
    """
    last = end or now()
    jobs = plan(sizes, last)
    known = {"created_at": last - SPAN}
    put(connection, models.Toolchain, _numbered({"identity": t, **known} for t in TOOLCHAINS))
    put(connection, models.Machine, _numbered(_machine(host, last) for host in HOSTS))
    put(connection, models.Worker, _numbered(_worker(n, last) for n in range(len(HOSTS))))
    named = map(problem, range(1, sizes.problems + 1))
    named_rows = ({"key": p.key, "canonical": p.canonical, **known} for p in named)
    put(connection, models.Problem, _numbered(named_rows))
    put(connection, models.Job, (_job(job, last) for job in jobs))
    put_ranges(connection, sizes, len(jobs), last)
    put(connection, models.Trial, (_trial(j, n) for j in jobs for n in range(j.trials)))
    found = list(
        {(job.problem, job.toolchain): job for job in jobs if job.state == "done"}.values()
    )
    put(connection, models.Schedule, (_schedule(n, job) for n, job in enumerate(found, 1)))
    replaced = [job for job in jobs if job.state == "done" and job not in found]
    put(connection, models.PastSchedule, (_past(n, job) for n, job in enumerate(replaced, 1)))
    put(connection, models.Script, (_script(n) for n in range(1, len(found) + 1)))
    put(connection, models.Proof, (_proof(n, job) for n, job in enumerate(found, 1)))
    with Session(connection) as session:
        for told in reports(TARGET, TOOLCHAINS, last, SPAN.days):
            suites.keep(session, told["report"])[0].created_at = told["created_at"]
        session.flush()
    return jobs


def put_ranges(connection: Connection, sizes: Sizes, jobs: int, end: datetime) -> None:
    """Insert tuned ranges with their problems and jobs, the newer toolchain's a day later."""
    numbers = range(1, RANGES + 1)
    named = [(number, problem_range(number)) for number in numbers]
    known = {"created_at": end - SPAN}
    put(connection, models.Problem, (
        {"id": sizes.problems + number, "key": one.key, "canonical": one.canonical, **known}
        for number, one in named
    ))  # fmt: skip
    done = [
        (Planned(jobs + 2 * number + toolchain - 2, sizes.problems + number, toolchain,
                 end - timedelta(days=3 - toolchain), 40, "done"), one)
        for number, one in named for toolchain in (1, 2)
    ]  # fmt: skip
    put(connection, models.Job, ({**_job(job, end), "kind": "range"} for job, _ in done))
    put(connection, models.TunedRange, (_range(n, *one) for n, one in enumerate(done, 1)))


def put(connection: Connection, model: type[Base], rows: Iterable[Row]) -> None:
    """Insert rows, some thousands at a time."""
    left = iter(rows)
    while page := list(islice(left, ROWS_AT_ONCE)):
        connection.execute(insert(model), page)
    if connection.dialect.name == "postgresql":
        name = model.__tablename__
        connection.exec_driver_sql(
            f"SELECT setval('{name}_id_seq', COALESCE(max(id), 0) + 1, false) FROM {name}"
        )


def _numbered(rows: Iterable[Row]) -> Iterator[Row]:
    return ({"id": number, **row} for number, row in enumerate(rows, 1))


def _machine(host: str, seen: datetime) -> Row:
    return {
        "host": host, "cpu": CPU, "cores": 16, "memory_bytes": 2**36, "caches": {"l1": 32768},
        "features": [], "peaks": {"f32": PEAK, "f64": PEAK / 2}, "peaks_at": seen, "seen_at": seen,
        "bandwidth_gbs": 20.0,
    }  # fmt: skip


def _worker(number: int, seen: datetime) -> Row:
    return {
        "owner": f"{HOSTS[number]}:1:1", "machine_id": number + 1, "targets": [TARGET],
        "toolchain": TOOLCHAINS[1], "capacity": 1, "started_at": seen,
        # One is gone; the others stay alive for as long as anybody measures.
        "seen_at": seen + (timedelta(minutes=-10) if number == 2 else timedelta(hours=1)),
    }  # fmt: skip


def _host(job: Planned) -> int:
    return job.number % len(HOSTS)


def _job(job: Planned, end: datetime) -> Row:
    runs, waits = job.state == "running", job.state == "queued"
    seconds = job.seconds_a_trial * (job.trials - job.copies)
    failed = job.state == "failed"
    crashed = failed and job.number % 100 > 50
    why = "the worker died 3 times; the last time: signal 9" if crashed else "no candidate ran"
    over = not (runs or waits)
    return {
        "id": job.number, "problem_id": job.problem, "target": TARGET,
        "toolchain_id": job.toolchain, "trials": job.trials * (1 + runs) or 40, "seed": 0,
        "sampler": "surrogate", "peers": job.problem % 3 == 0, "cache": "hot",
        "state": job.state, "owner": f"{HOSTS[_host(job)]}:1:1" if runs else None,
        "host": None if waits else HOSTS[_host(job)],
        "claimed_at": job.begins if runs else None, "heartbeat_at": end if runs else None,
        "epoch": 1, "crashes": 3 * crashed, "elapsed_s": seconds if over else 0.0,
        "complete": job.state == "done" if over else None, "error": why if failed else None,
        "created_at": job.begins, "started_at": None if waits else job.begins,
        "finished_at": job.begins + timedelta(seconds=seconds) if over else None,
        "phase": None if waits else "search", "phase_done": 0, "phase_total": job.trials,
    }  # fmt: skip


def _trial(job: Planned, number: int) -> Row:
    of = job.source if job.source is not None and number < job.copies else job
    chance = Random(of.number * 1000 + number)
    tried, draw = schedule(number), chance.random()
    state = "failed" if draw < 0.04 else "pruned" if draw < 0.2 else "timed"
    speed = _best(of) * chance.uniform(0.3, 0.99) * (0.6 if state == "pruned" else 1.0)
    gflops = None if state == "failed" else speed
    failure = chance.choice(FAILURES) if state == "failed" else None
    return {
        "job_id": job.number, "number": number, "hash": tried.hash, "steps": tried.to_json(),
        "params": {"rows": number, "outer": "cols", "pack": True}, "state": state,
        "origin": chance.choice(ORIGINS), "failure": failure, "message": failure or "",
        "gflops": gflops, "low": gflops and 0.99 * gflops, "high": gflops and 1.01 * gflops,
        "time_us": gflops and 1e5 / gflops, "samples": pack_samples((1e-4,) * 21), "pace": 1.0,
        "rejected": 0, "compile_s": 0.1, "max_error": 0.0, "created_at": job.ended(number),
    }  # fmt: skip


def _best(job: Planned) -> float:
    """GFLOP/s of the schedule that a job finds."""
    share = Random(job.problem).uniform(0.55, 0.97)
    change = Random(-job.problem).uniform(-0.08, 0.08) if job.toolchain == 2 else 0.0
    return min(PEAK, PEAK * share * (1.0 + change))


def _work(job: Planned) -> ResultKey:
    made = problem(job.problem)
    return ResultKey(made.key, made.canonical, TARGET, TOOLCHAINS[job.toolchain - 1], "hot")


def _schedule(number: int, job: Planned) -> Row:
    best, gflops = schedule(job.trials - 1), _best(job)
    chance = Random(job.problem)
    peer = {"openblas": 0.95, "onednn": chance.uniform(0.7, 1.15)} if job.problem % 3 == 0 else {}
    peers = {
        name: {"gflops": gflops * r, "interval": [gflops * r, gflops * r], "time_us": 1.0}
        for name, r in peer.items()
    }
    values = {
        "job_id": job.number, "hash": best.hash, "steps": best.to_json(), "gflops": gflops,
        "low": 0.99 * gflops, "high": 1.01 * gflops, "time_us": 1e5 / gflops, "peak_gflops": PEAK,
        "scratch_bytes": {"A": 64, "B": 64}, "peers": peers or None, "budget": job.trials,
        "measured": {"samples": 21, "placements": 6, "rejected": 0, "disturbed": 0, "cold": None},
        "elapsed_s": job.seconds_a_trial * job.trials, "complete": True,
    }  # fmt: skip
    digest = result_digest(_work(job), models.Schedule(**values))
    return {
        "id": number, "problem_id": job.problem, "target": TARGET, "toolchain_id": job.toolchain,
        "machine_id": _host(job) + 1, "cache": "hot", **values, "digest": digest,
        "created_at": job.ended(job.trials - 1),
    }  # fmt: skip


def _past(number: int, job: Planned) -> Row:
    """What a job has found, replaced a day later; of every third the stored one is faster."""
    made = _schedule(number, job)
    ended = made["created_at"] + timedelta(days=1)
    return {**made, "was_best": number % 3 > 0, "ended_at": ended}


def _range(number: int, job: Planned, problems: ProblemRange) -> Row:
    variants, slower = (schedule(0), schedule(1)), 1.0 + 0.01 * number
    choice = tuple(int(size >= 8) for (size,) in problems.sizes)
    times = [(size, float(size[0])) for size in sample_sizes(problems)]
    samples = [SampleTimes(size, variants[0].hash, t, (t, slower * t)) for size, t in times]
    found = RangeResult(RangeSchedule(problems, variants, choice), ((1,), (2,)), tuple(samples))
    values = {
        "job_id": job.number, "family": family_of(problems.smallest, problems.dims),
        "result": found.to_json(), "loss_mean": found.loss.geometric_mean,
        "loss_worst": found.loss.worst, "budget": job.trials,
        "elapsed_s": job.seconds_a_trial * job.trials,
    }  # fmt: skip
    work = ResultKey(problems.key, problems.canonical, TARGET, TOOLCHAINS[job.toolchain - 1], "hot")
    return {
        "id": number, "problem_id": job.problem, "target": TARGET, "toolchain_id": job.toolchain,
        "machine_id": _host(job) + 1, "cache": "hot", **values,
        "digest": result_digest(work, models.TunedRange(**values)), "created_at": job.begins,
    }  # fmt: skip


def _spelled(number: int) -> Row:
    spelled, text = schedule(number % 14), f"// {number}\nmodule {{}}\n" * 50
    named = {"flavor": "cpu", "hash": spelled.hash, "steps": spelled.to_json(), "text": text}
    return {**named, "sha256": hashlib.sha256(text.encode()).hexdigest()}


def _script(number: int) -> Row:
    return {"id": number, "schedule_id": number, **_spelled(number), "created_at": now()}


def _proof(number: int, job: Planned) -> Row:
    ok, gflops = job.problem % 15 != 1, 0.9 * _best(job)
    values = {
        "ok": ok, "applied": True, "executed": True, "max_error": 1e-7 if ok else 0.5,
        "tolerance": 1e-5, "gflops": gflops, "low": 0.99 * gflops, "high": 1.01 * gflops,
        "time_us": 1e5 / gflops, "mlir": "iree-base-compiler 3.13.0",
        "failure": None if ok else "wrong", "message": "" if ok else "the result is wrong",
    }  # fmt: skip
    proof = models.Proof(**values, script=models.Script(**_spelled(number)))
    return {
        "id": number, "schedule_id": number, "script_id": number, **values,
        "digest": proof_digest(_work(job), proof), "created_at": job.ended(job.trials - 1),
    }  # fmt: skip
