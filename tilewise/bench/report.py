"""The results of a suite: a row per problem, and their sums."""

import re
from dataclasses import dataclass, field
from math import exp, log

from tilewise.bench.suite import Suite, SuiteEntry
from tilewise.schema.base import Json
from tilewise.search.final_benchmark.quality import quality_of
from tilewise.search.records import OWN, Measurement

_OF_PEAK = re.compile(r"\baccuracy=bf16x3|\b[ab]=\w+")
"""Keys of a problem that select other instructions than its type, with another peak."""


@dataclass(frozen=True)
class PeerSpeed:
    """A peer's fastest way; `output` is its result type where narrower than the problem's."""

    measurement: Measurement
    variant: str
    output: str | None = None


@dataclass(frozen=True)
class Compared:
    """One problem and its peers, all from the same rounds.

    Attributes:
        ours: None if no schedule of ours runs, for `reason`.
        schedule: hash of the schedule.
        peers: those with correct results.
        absent: why each other peer has none.
        peak_gflops: multiply-add peak of the same run, 0 if unknown.
    """

    entry: SuiteEntry
    ours: Measurement | None
    reason: str = ""
    schedule: str | None = None
    peers: dict[str, PeerSpeed] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    peak_gflops: float = 0.0

    @property
    def oracle(self) -> str | None:
        """The fastest peer that does not run our own kernel."""
        others = [name for name in self.peers if name not in OWN]
        return max(others, key=lambda name: self.peers[name].measurement.gflops, default=None)

    @property
    def ratio(self) -> float | None:
        """Our speed over the fastest peer's; None unless there are both."""
        if self.ours is None or self.oracle is None:
            return None
        return self.ours.gflops / self.peers[self.oracle].measurement.gflops

    def to_json(self) -> Json:
        """Return one element of `problems`."""
        oracle = self.oracle
        ours = None
        if self.ours is not None:
            ours = _speed_json(self.ours)
            if self.peak_gflops:
                ours["peak_fraction"] = self.ours.gflops / self.peak_gflops
        return {
            "problem": self.entry.problem.canonical,
            "label": self.entry.label,
            "count": self.entry.count,
            "ours": ours,
            "reason": self.reason,
            "schedule": self.schedule,
            "peers": {name: _peer_json(peer) for name, peer in self.peers.items()},
            "absent": self.absent,
            "oracle": oracle and {
                "peer": oracle,
                "gflops": self.peers[oracle].measurement.gflops,
            },
            "ratio": self.ratio,
        }  # fmt: skip


@dataclass(frozen=True)
class SuiteTable:
    """A suite's rows and machine; problems without ours or a peer are `left_out` of the sums."""

    suite: Suite
    machine: Json
    rows: tuple[Compared, ...]

    @property
    def counted(self) -> list[Compared]:
        """The rows in the sums."""
        return [row for row in self.rows if row.ratio is not None]

    @property
    def geomean_ratio(self) -> float | None:
        """Geometric mean of the ratios, each problem once."""
        ratios = [row.ratio for row in self.rows if row.ratio is not None]
        return exp(sum(map(log, ratios)) / len(ratios)) if ratios else None

    @property
    def weighted(self) -> Json | None:
        """Speed of the whole workload, by count, ours and with the best peer per problem."""
        work, ours_s, oracle_s = 0.0, 0.0, 0.0
        for row in self.counted:
            assert row.ours is not None and row.oracle is not None
            oracle = row.peers[row.oracle].measurement
            work += row.entry.count * row.entry.problem.flops
            ours_s += row.entry.count * row.ours.time_us / 1e6
            oracle_s += row.entry.count * oracle.time_us / 1e6
        if not work:
            return None
        return {
            "ours_gflops": work / ours_s / 1e9,
            "oracle_gflops": work / oracle_s / 1e9,
            "ours_s": ours_s,
            "oracle_s": oracle_s,
            "ratio": oracle_s / ours_s,
        }

    def to_json(self) -> Json:
        """Return the contract's object."""
        peaks: dict[str, float] = {}
        for row in self.rows:
            problem = row.entry.problem
            name = " ".join((problem.element.name, *_OF_PEAK.findall(problem.canonical)))
            if row.peak_gflops:
                peaks[name] = max(row.peak_gflops, peaks.get(name, 0.0))
        return {
            "suite": self.suite.name,
            "source": self.suite.source,
            "machine": {**self.machine, "peak_gflops": peaks},
            "problems": [row.to_json() for row in self.rows],
            "counted": len(self.counted),
            "left_out": len(self.rows) - len(self.counted),
            "geomean_ratio": self.geomean_ratio,
            "weighted": self.weighted,
        }


def _speed_json(measurement: Measurement) -> Json:
    return {
        "gflops": measurement.gflops,
        "interval": list(measurement.interval),
        "time_us": measurement.time_us,
        "quality": quality_of(measurement),
    }


def _peer_json(peer: PeerSpeed) -> Json:
    shown = {**_speed_json(peer.measurement), "variant": peer.variant}
    return shown if peer.output is None else {**shown, "output": peer.output}
