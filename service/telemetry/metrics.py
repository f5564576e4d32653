"""Metrics of one service process, for Prometheus.

Names and units are customary (prometheus.io/docs/practices/naming). No label has values that a
client chooses: routes are templates, and what is unknown has one value.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    PlatformCollector,
    ProcessCollector,
)

from tilewise.schema.base import MatchKind

METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
KINDS: tuple[MatchKind, ...] = get_args(MatchKind)
OTHER = "other"
NO_ROUTE = "none"
BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """The counters of one application; each has a registry of its own.

    Args:
        version: of Tilewise.
        toolchain: identity of the compilers.
    """

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
