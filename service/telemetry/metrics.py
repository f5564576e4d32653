"""Metrics: counters of this process, and values from the database.

To add up what the database says over processes would count everything as often as there are
processes; take the largest. Trials are counted from when this process began to look, a row once.
"""

import collections
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic, perf_counter
from typing import TypeVar, get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from tilewise.schema.base import JobState, MatchKind
from tilewise.search.records import TrialState
from tilewise.service.db import models
from tilewise.service.db.base import now
from tilewise.service.db.trials import unpack_samples
from tilewise.service.jobs import registry
from tilewise.service.jobs.queue import SEARCHES
from tilewise.service.results import integrity, regressions

METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
KINDS: tuple[MatchKind, ...] = get_args(MatchKind)
OTHER = "other"
NO_ROUTE = "none"
BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """The counters of one application, each with a registry of its own."""

    def __init__(self, version: str, toolchain: str) -> None:
        self.registry = CollectorRegistry()
        self._known: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self._requests = Counter(
            "tilewise_http_requests", "Requests answered, by route template.",
            ("method", "route", "status"), registry=self.registry,
        )  # fmt: skip
        self._seconds = Histogram(
            "tilewise_http_request_duration_seconds", "From a request to the end of its answer.",
            ("method", "route"), buckets=BUCKETS_S, registry=self.registry,
        )  # fmt: skip
        self.in_flight = Gauge(
            "tilewise_http_requests_in_flight",
            "Requests that are being answered.",
            registry=self.registry,
        )
        self._answers = Counter(
            "tilewise_answers", "Look-ups of problems, by how near what was found is.",
            ("kind",), registry=self.registry,
        )  # fmt: skip
        self._database = Histogram(
            "tilewise_database_seconds", "Sessions of requests with the database, by what they do.",
            ("mode",), buckets=BUCKETS_S, registry=self.registry,
        )  # fmt: skip
        Info("tilewise_build", "What runs.", registry=self.registry).info(
            {"version": version, "toolchain": toolchain}
        )
        ProcessCollector(namespace="tilewise", registry=self.registry)
        PlatformCollector(registry=self.registry)
        for kind in (*KINDS, "none"):
            self._answers.labels(kind)

    def count_request(self, method: str, route: str | None, status: int, seconds: float) -> None:
        """Count one request that was answered."""
        shown = method if method in METHODS else OTHER
        counter, histogram = self._children(shown, route or NO_ROUTE, status)
        counter.inc()
        histogram.observe(seconds)

    def count_answer(self, kind: str | None) -> None:
        """Count a look-up of one problem; None found nothing."""
        self._answers.labels(kind if kind in KINDS else "none").inc()

    @contextmanager
    def timed_database(self, mode: str) -> Iterator[None]:
        """Time a session; `mode` is read or write."""
        begin = perf_counter()
        try:
            yield
        finally:
            self._database.labels(mode).observe(perf_counter() - begin)

    def _children(self, method: str, route: str, status: int) -> tuple[Counter, Histogram]:
        """What counts such requests; to find it anew would take longer than to count."""
        key = method, route, status
        if key not in self._known:
            self._known[key] = (
                self._requests.labels(method, route, str(status)),
                self._seconds.labels(method, route),
            )
        return self._known[key]


ROWS_AT_ONCE = 5000
REGRESSED_EVERY_S = 60.0
STATES: tuple[JobState, ...] = get_args(JobState)
OUTCOMES: tuple[TrialState, ...] = get_args(TrialState)
PHASES = ("compile", "timing")
TABLES = ("problems", "schedules", "past_schedules", "tuned_ranges", "proofs", "plans")
Family = TypeVar("Family", GaugeMetricFamily, CounterMetricFamily)


@dataclass(eq=False)
class StoredMetrics(Collector):
    """The last values read from the database, for Prometheus.

    `last` is the number of the last counted trial's row.
    """

    last: int | None = None
    jobs: dict[str, int] = field(default_factory=dict)
    queue_age_s: float = 0.0
    workers: int = 0
    regressed: int = 0
    next_regressed_s: float = 0.0
    trials: collections.Counter[str] = field(default_factory=collections.Counter)
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, session: Session) -> None:
        """Count only trials that are stored from now on."""
        self.last = session.scalar(select(func.max(models.Trial.id))) or 0

    def look(self, session: Session, present: str) -> None:
        """Update all values under the present toolchain; the cost depends only on what is new.

        But for regressions, whose count reads all schedules once a minute.
        """
        with self.lock:
            job, is_search = models.Job, models.Job.kind.in_(SEARCHES)
            counts = select(job.state, func.count()).where(is_search).group_by(job.state)
            self.jobs = {str(state): number for state, number in session.execute(counts)}
            oldest = session.scalar(
                select(func.min(job.created_at)).where(is_search, job.state == "queued")
            )
            self.queue_age_s = 0.0 if oldest is None else (now() - oldest).total_seconds()
            self.workers = len(registry.live(session))
            if monotonic() >= self.next_regressed_s:
                self.regressed = regressions.count_regressed(session, present)
                self.next_regressed_s = monotonic() + REGRESSED_EVERY_S
            self._count_trials(session)

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """Yield the metrics for a Prometheus scrape."""
        jobs = GaugeMetricFamily("tilewise_jobs", "Jobs by state.", labels=["state"])
        yield _filled(jobs, STATES, self.jobs)
        yield GaugeMetricFamily(
            "tilewise_queue_age_seconds", "Since the oldest queued job was created.",
            value=self.queue_age_s,
        )  # fmt: skip
        yield GaugeMetricFamily("tilewise_workers", "Live worker processes.", value=self.workers)
        yield GaugeMetricFamily(
            "tilewise_regressed_problems",
            "Problems whose result is slower than that of another toolchain.",
            value=self.regressed,
        )
        trials = CounterMetricFamily("tilewise_trials", "Trials by outcome.", labels=["outcome"])
        yield _filled(trials, OUTCOMES, self.trials)
        seconds = CounterMetricFamily(
            "tilewise_trial_seconds", "Seconds of trials by phase.", labels=["phase"]
        )
        yield _filled(seconds, PHASES, self.seconds)
        refused = CounterMetricFamily(
            "tilewise_refused_rows", "Rows refused by this process as not what was stored.",
            labels=["table"],
        )  # fmt: skip
        yield _filled(refused, TABLES, integrity.refused())

    def _count_trials(self, session: Session) -> None:
        if self.last is None:
            self.begin(session)
        row = models.Trial
        # What a job took over from an earlier one is older than the job itself.
        query = (
            select(row.id, row.state, row.compile_s, row.samples)
            .join(models.Job, models.Job.id == row.job_id)
            .where(row.created_at >= models.Job.created_at)
            .order_by(row.id)
            .limit(ROWS_AT_ONCE)
        )
        while found := session.execute(query.where(row.id > self.last)).all():
            for number, state, compile_s, samples in found:
                self.last = number
                self.trials[str(state)] += 1
                self._add_seconds(compile_s, samples)

    def _add_seconds(self, compile_s: object, samples: object) -> None:
        """Add what a row says; a damaged one says nothing."""
        if isinstance(compile_s, float) and compile_s >= 0:
            self.seconds["compile"] += compile_s
        if isinstance(samples, bytes) and len(samples) % 8 == 0:
            self.seconds["timing"] += sum(unpack_samples(samples))


def _filled(family: Family, labels: Iterable[str], values: Mapping[str, float]) -> Family:
    """Add the value of each label, 0 without one."""
    for label in labels:
        family.add_metric([label], values.get(label, 0))
    return family
