"""Predictors trained on recorded spaces and on stores, and their evaluation."""

from collections.abc import Sequence
from pathlib import Path
from statistics import geometric_mean

import numpy as np

from tilewise.backends.service_errors import stored_sessions
from tilewise.errors import bad_input
from tilewise.kernels.errors import KernelsError
from tilewise.kernels.problem import parse_problem
from tilewise.schema.base import Json
from tilewise.search.errors import PredictorError, RecordingError
from tilewise.search.predictor import training
from tilewise.search.predictor.predictor import in_use, own_file
from tilewise.search.predictor.training import Evaluated, TimedSpace
from tilewise.search.recording import Recording
from tilewise.search.records import TimedPoint
from tilewise.search.space.algorithms import ALGORITHM
from tilewise.service.db.session import reading
from tilewise.service.db.trials import record
from tilewise.service.results.trials import find_trials

COLUMNS = ("predicted", "ranked", "predicted_elsewhere", "ranked_elsewhere", "prior", "model")
UNREADABLE = (RecordingError, KernelsError, LookupError, TypeError, AttributeError, ValueError)
"""What reading a file raises that is no recording."""


def read_spaces(paths: Sequence[str], database: str | None) -> list[TimedSpace]:
    """Return recorded spaces (files, and all in folders) and those of a store's hot trials."""
    spaces = list[TimedSpace]()
    for path in map(Path, paths):
        spaces += map(_recorded, sorted(path.rglob("*.json.gz")) if path.is_dir() else [path])
    if database or not paths:
        spaces += _stored(database)
    with bad_input("predictor", PredictorError):
        return training.usable(spaces)


def evaluate(spaces: Sequence[TimedSpace]) -> tuple[list[Evaluated], Json]:
    """Return the evaluation of held-out spaces, and its document."""
    found = training.evaluate(spaces)
    rows = [_row(one) for one in found]
    summary = {
        name: {"geomean": geometric_mean(shares), "p10": float(np.percentile(shares, 10))}
        for name in COLUMNS
        if (shares := [row[name] for row in rows if row[name] is not None])
    }
    return found, {"spaces": rows, "summary": summary}


def train(spaces: Sequence[TimedSpace], into: Path | None) -> Json:
    """Train on all spaces and write the predictor; return the document of its evaluation.

    Without a file it is put where predictions on this machine find it.
    """
    found, document = evaluate(spaces)
    into = into or own_file()
    with bad_input(str(into), OSError):
        training.train(spaces, found).save(into)
    return {**document, "file": str(into)}


def _row(one: Evaluated) -> Json:
    elsewhere = one.processor
    shares = (
        one.problem.predicted,
        one.problem.ranked,
        elsewhere and elsewhere.predicted,
        elsewhere and elsewhere.ranked,
        one.prior,
        one.model,
    )
    return {"space": one.name, **dict(zip(COLUMNS, shares, strict=True))}


def _recorded(path: Path) -> TimedSpace:
    """Return a recorded space; one older than fast algorithms has the direct method alone."""
    with bad_input(f"predictor: {path}", *UNREADABLE):
        recording = Recording.load(path)
    problem = recording.problem
    if ALGORITHM not in recording.parameters:
        problem = parse_problem({**problem.to_json(), "accuracy": "strict"})
    timed = [(t.params, recording.time_us(t)) for t in recording.trials if t.measurement]
    name = f"{path.parent.name}/{path.name.removesuffix('.json.gz')}"
    return TimedSpace(name, problem, recording.target, timed)


def _stored(database: str | None) -> list[TimedSpace]:
    """Return the spaces of a store's trials with hot caches, on targets whose caches are known."""
    timed: dict[tuple[str, str], list[TimedPoint]] = {}
    with stored_sessions(database) as sessions, reading(sessions) as session:
        for row, job in find_trials(session, cache="hot"):
            trial = record(row)
            if trial.measurement is not None and trial.state != "failed":
                work = job.problem.canonical, job.target
                timed.setdefault(work, []).append((trial.params, trial.measurement.time_us))
    return [
        TimedSpace(f"{problem} {text}", parse_problem(problem), target, points)
        for (problem, text), points in timed.items()
        if (target := in_use().target(text)) is not None
    ]
