"""Timed schedules of one problem in a compact file, for replaying searches.

A recording has points, steps, origins, and raw samples in nanoseconds, and interleaved samples of
the fastest. It does not depend on the present space.
"""

import gzip
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.schedule import Schedule, with_instruction
from tilewise.kernels.steps import step_from_json
from tilewise.kernels.target.model import Target
from tilewise.search.errors import RecordingError
from tilewise.search.records import Solved, TrialRecord
from tilewise.search.space.points import Value, point_from_json
from tilewise.search.timing.samples import summarise

FORMAT = 1
NS = 1e9


@dataclass
class Recording:
    """Timed schedules of one problem on one target.

    Attributes:
        parameters: the values of each parameter of the space at that time.
        trials: in order; `origin` says how each was chosen.
        again: by schedule hash, seconds of interleaved rounds at the trials' speed factor.
        condition: how it was recorded: core, date, protocol.
    """

    problem: Problem
    target: Target
    parameters: dict[str, tuple[Value, ...]]
    trials: list[TrialRecord] = field(default_factory=list)
    again: dict[str, tuple[float, ...]] = field(default_factory=dict)
    toolchain: str = ""
    condition: dict[str, str] = field(default_factory=dict)

    def time_us(self, trial: TrialRecord) -> float:
        """Return the best known time of a trial, at speed factor 1."""
        if times := self.again.get(trial.schedule.hash):
            return median(times) * 1e6
        return trial.measurement.time_us if trial.measurement else float("inf")

    def by_time(self) -> list[TrialRecord]:
        """Return the trials that ran, fastest first."""
        return sorted((t for t in self.trials if t.measurement), key=self.time_us)

    def solved(self) -> Solved:
        """Return its points as a store does."""
        return Solved.of(self.problem, self.target.canonical, self.trials)

    def save(self, path: Path) -> None:
        """Write the file atomically."""
        words: dict[str, int] = {}
        trials = [_trial_to_json(t, self.parameters, words) for t in self.trials]
        document = {
            "format": FORMAT,
            "problem": self.problem.canonical,
            "target": asdict(self.target) | {"features": sorted(self.target.features)},
            "toolchain": self.toolchain,
            "condition": self.condition,
            "parameters": self.parameters,
            "steps": [json.loads(text) for text in words],
            "trials": trials,
            "again": {key: _to_ns(times) for key, times in self.again.items()},
        }
        if any(t.speed_factor is not None for t in self.trials):
            document["paces"] = [t.speed_factor and round(t.speed_factor, 4) for t in self.trials]
        draft = path.with_suffix(".tmp")
        text = json.dumps(document, separators=(",", ":"), default=asdict)
        draft.write_bytes(gzip.compress(text.encode(), mtime=0))
        draft.replace(path)

    @classmethod
    def load(cls, path: Path) -> "Recording":
        """Read a file; raise RecordingError if that is impossible."""
        try:
            document = json.loads(gzip.decompress(path.read_bytes()))
        except (OSError, EOFError, ValueError) as error:
            raise RecordingError(f"{path} is not a recording: {error}") from error
        if document.get("format") != FORMAT:
            raise RecordingError(
                f"{path} has format {document.get('format')}, not {FORMAT}; record it again"
            )
        problem = parse_problem(document["problem"])
        target = document["target"]
        steps = [step_from_json(step) for step in document["steps"]]
        made_for = replace(
            Target(**target),
            features=frozenset(target["features"]),
            rates=tuple((name, rate) for name, rate in target.get("rates", ())),
        )
        parameters = {
            name: tuple(point_from_json({name: value})[name] for value in values)
            for name, values in document["parameters"].items()
        }
        speed_factors = document.get("paces") or [None] * len(document["trials"])
        stored = [Schedule(tuple(steps[word] for word in row[1])) for row in document["trials"]]
        # Schedules that are older than the step name their instruction now, as searches do.
        named = [with_instruction(problem, schedule, made_for) for schedule in stored]
        hashes = {old.hash: new.hash for old, new in zip(stored, named, strict=True)}
        rows = zip(document["trials"], speed_factors, named, strict=True)
        trials = [
            _trial_from_json(number, row, speed_factor, parameters, schedule, problem.flops)
            for number, (row, speed_factor, schedule) in enumerate(rows)
        ]
        return cls(
            problem,
            made_for,
            parameters,
            trials,
            {hashes.get(key, key): _to_s(times) for key, times in document["again"].items()},
            document["toolchain"],
            document["condition"],
        )


def _trial_to_json(
    trial: TrialRecord, parameters: dict[str, tuple[Value, ...]], words: dict[str, int]
) -> list[Any]:
    steps = [json.dumps(step) for step in trial.schedule.to_json()]
    return [
        [values.index(trial.params[name]) for name, values in parameters.items()],
        [words.setdefault(step, len(words)) for step in steps],
        trial.origin,
        trial.state,
        _to_ns(trial.samples),
        trial.rejected,
        round(trial.compile_s, 3),
        *([trial.failure, trial.message] if trial.failure else []),
    ]


def _trial_from_json(
    number: int,
    row: list[Any],
    speed_factor: float | None,
    parameters: dict[str, tuple[Value, ...]],
    schedule: Schedule,
    flops: int,
) -> TrialRecord:
    indices, _words, origin, state, ns, rejected, compile_s, *failure = row
    samples = _to_s(ns)
    return TrialRecord(
        number=number,
        schedule=schedule,
        params={
            name: values[i] for (name, values), i in zip(parameters.items(), indices, strict=True)
        },
        state=state,
        origin=origin,
        failure=failure[0] if failure else None,
        message=failure[1] if failure else "",
        measurement=summarise([t / (speed_factor or 1.0) for t in samples], flops)
        if samples
        else None,
        samples=samples,
        speed_factor=speed_factor,
        rejected=rejected,
        compile_s=compile_s,
    )


def _to_ns(times: Sequence[float]) -> list[int]:
    return [round(t * NS) for t in times]


def _to_s(times: Sequence[int]) -> tuple[float, ...]:
    return tuple(t / NS for t in times)
