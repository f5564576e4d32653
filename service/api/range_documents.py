"""JSON of what is stored of a problem or a range, and of a range's answer for a single size."""

from dataclasses import asdict

from sqlalchemy.orm import Session

from tilewise.kernels.problem import Problem, ProblemRange
from tilewise.schema import results as schema
from tilewise.schema.base import Json
from tilewise.schema.ranges import StoredRange
from tilewise.service.api.documents import (
    instruction_text,
    machine_json,
    match_json,
    result_json,
    shown,
)
from tilewise.service.db import models
from tilewise.service.results import nearest, ranges
from tilewise.service.results.stored import Lookup


def found_json(session: Session, wanted: Problem | ProblemRange, lookup: Lookup) -> Json | None:
    """Return what is stored of a problem or a range; None if nothing is.

    With `match` `range`, a range that contains it answers if nothing else is stored.
    """
    if isinstance(wanted, ProblemRange):
        row = ranges.find_range(session, wanted.key, lookup)
        if row is None and lookup.match == "range":
            row = ranges.find_containing(session, wanted, lookup)
        return None if row is None else range_json(row, lookup.toolchain)
    found = nearest.find(session, [wanted.key], lookup).get(wanted.key)
    if found is not None:
        return result_json(session, found, lookup.toolchain, target=lookup.target, in_full=True)
    return size_json(session, wanted, lookup) if lookup.match == "range" else None


def stored_json(session: Session, row: models.Schedule | models.TunedRange, toolchain: str) -> Json:
    """Return the object of a stored result or range."""
    if isinstance(row, models.TunedRange):
        return range_json(row, toolchain)
    return result_json(session, row, toolchain, in_full=True)


def range_json(row: models.TunedRange, toolchain: str) -> Json:
    """Return the object of `tune --json` and `GET /v1/schedules` for a range.

    Raises TamperedError if the row was changed.
    """
    found = ranges.result_of(row)
    problems, variants = found.schedule.problems, []
    for index, schedule in enumerate(found.schedule.variants):
        sizes = zip(*found.schedule.sizes_of(index), strict=True)
        ends = {dim: [min(one), max(one)] for dim, one in zip(problems.dims, sizes, strict=True)}
        variants.append({**ends, "hash": schedule.hash, "steps": schedule.to_json()})
    samples = [
        {
            **sample.to_json(),
            "variant": found.variant_at(sample.size),
            "gflops": problems.at(sample.size).flops / found.time_us(sample.size) / 1e3,
        }
        for sample in found.samples
    ]
    return shown(
        (row,),
        StoredRange,
        problem=problems.canonical,
        key=problems.key,
        toolchain=row.toolchain.identity,
        machine=machine_json(row.machine),
        dim=",".join(problems.dims),
        variants=variants,
        spans=found.schedule.to_json()["spans"],
        loss=asdict(found.loss),
        samples=samples,
        formats=found.formats,
        trials=row.budget,
        stale=row.toolchain.identity != toolchain,
    )


def size_json(session: Session, problem: Problem, lookup: Lookup) -> Json | None:
    """Return the answer of a stored range that contains a problem; None if there is none.

    It has the form of a stored result, with `match.kind` `range`. A sampled size has a measured
    time, another one an estimate: its grade is `predicted`.
    """
    row = ranges.find_containing(session, problem, lookup)
    if row is None:
        return None
    found = ranges.result_of(row)
    problems = found.schedule.problems
    size = problems.size_of(problem)
    schedule, time_us = found.schedule.at(size), found.time_us(size)
    is_sample = any(sample.size == size for sample in found.samples)
    best = shown(
        (schedule,),
        schema.Best,
        steps=schedule.to_json(),
        instruction=instruction_text(problem.canonical, schedule.to_json(), row.machine),
        gflops=problem.flops / time_us / 1e3,
        interval=None,
        time_us=time_us,
        peak_fraction=None,
        grade="measured" if is_sample else "predicted",
    )
    matched = match_json(row, lookup)
    matched["match"] |= {"kind": "range", "reason": None, "range": problems.canonical}
    return shown(
        (row,),
        schema.StoredResult,
        problem=problem.canonical,
        key=problem.key,
        toolchain=row.toolchain.identity,
        machine=machine_json(row.machine),
        trials={"asked": row.budget, "timed": 0, "pruned": 0, "failed": 0},
        best=best,
        peers={},
        proof=None,
        complete=True,
        **matched,
    )
