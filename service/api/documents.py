"""JSON of results, jobs, trials, tokens and reports."""

import functools
import math
from collections.abc import Sequence
from dataclasses import MISSING, asdict, fields
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from tilewise.kernels.errors import KernelsError, TargetError
from tilewise.kernels.mlir.proof.proof import prover_of
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Schedule, instruction_of, loop_nest
from tilewise.kernels.system.toolchain import identity
from tilewise.kernels.target import described
from tilewise.schema import results as schema
from tilewise.schema.base import NAME, Json
from tilewise.schema.status import SuiteReportHead, Token
from tilewise.search.space.points import TilePoint, scalars_of
from tilewise.service.api.suite_reports import SuiteReport
from tilewise.service.db import models
from tilewise.service.db.base import is_sound
from tilewise.service.db.trials import unpack_samples
from tilewise.service.errors import DamagedError, TamperedError
from tilewise.service.jobs import lease, queue
from tilewise.service.results import history, integrity, nearest, regressions, schedules
from tilewise.service.results.stored import Lookup, ResultKey, shown_proofs, why_not_own
from tilewise.service.results.trials import trial_counts
from tilewise.service.runs import helper_offers

LINKS = {"self": "", "trials": "/trials", "events": "/events"}


def shown(rows: Sequence[object], kind: type, **given: Any) -> Json:
    """Return an object of the API: what is `given`, and all else from the first row that has it.

    What no row has gets its default. The column of a field `created` may be `created_at`. Moments
    are in UTC, as text.
    """
    return {
        name: given[name] if name in given else _value(rows, name, default)
        for name, default in _defaults(kind).items()
    }


@functools.cache
def _defaults(kind: type) -> dict[str, Any]:
    declared = (one for one in fields(kind) if one.name != "document")
    return {one.metadata.get(NAME, one.name): one.default for one in declared}


def _value(rows: Sequence[object], name: str, default: Any) -> Any:
    for row in rows:
        for column in (name, f"{name}_at"):
            if hasattr(row, column):
                value = getattr(row, column)
                return moment(value) if isinstance(value, datetime) else value
    if default is MISSING:
        raise AttributeError(f"no row has {name}")
    return default


def result_json(
    session: Session,
    row: models.Schedule,
    toolchain: str | None = None,
    *,
    target: str | None = None,
    in_full: bool = False,
) -> Json:
    """Return the object of `tune --json`, `show --json` and `GET /v1/schedules`.

    `toolchain` None is the present one, `target` None that of the row. `in_full` adds what takes
    tenths of a second: the size of the space and the newest past result. Raises TamperedError if
    the row or its proof was changed.
    """
    (found,) = results_json(session, [row], toolchain, target).values()
    if isinstance(found, TamperedError):
        raise found
    proof = found["proof"]
    if proof is not None and proof["failure"] is None and proof["hash"] != row.hash:
        proof["reason"] = why_not_own(session, row.id, row.hash)
    if in_full:
        found["space"] = space_json(row.problem.canonical, row.target)
        past = history.latest(session, row)
        found["previous"] = None if past is None else past_json(past)
    return found


def results_json(
    session: Session,
    rows: Sequence[models.Schedule],
    toolchain: str | None = None,
    target: str | None = None,
) -> dict[int, Json | TamperedError]:
    """Return the result or error of `result_json` for each row by id, with few queries."""
    present = toolchain or identity()
    proofs = shown_proofs(session, [row.id for row in rows])
    counts = trial_counts(session, {row.job_id for row in rows})
    found: dict[int, Json | TamperedError] = {}
    for row in rows:
        proof = proofs.get(row.id)
        try:
            integrity.check_result(row)
            if proof is not None:
                integrity.check_proof(ResultKey.of(row), proof)
            if row.job_id not in counts:
                raise integrity.without_job(row)
        except TamperedError as error:
            found[row.id] = error
        else:
            lookup = Lookup(target or row.target, present)
            found[row.id] = _result_json(row, proof, counts[row.job_id], lookup)
    return found


def _result_json(
    row: models.Schedule, proof: models.Proof | None, trials: Json, lookup: Lookup
) -> Json:
    return shown(
        (row,),
        schema.StoredResult,
        problem=row.problem.canonical,
        key=row.problem.key,
        toolchain=row.toolchain.identity,
        machine=machine_json(row.machine),
        origin=_origin(row),
        trials=trials,
        best={**best_json(row), "grade": "proven" if proof and proof.ok else "measured"},
        peers=row.peers or {},
        proof=None if proof is None else proof_json(proof),
        **match_json(row, lookup),
    )


def _origin(row: models.Schedule) -> str | None:
    """The publisher of an imported result, as an export has named it."""
    found = row.measured.get("origin") if isinstance(row.measured, dict) else None
    return found if isinstance(found, str) and found.isprintable() else None


def machine_json(row: models.Machine) -> Json | None:
    """Return the machine that timed a result; None if its row is damaged."""
    return shown((row,), schema.Machine, peaks=row.peaks or {}) if is_sound(row) else None


def match_json(row: models.Schedule | models.TunedRange, lookup: Lookup) -> Json:
    """Return how a row matches the request, and what differs."""
    given = {"target": row.target, "toolchain": row.toolchain.identity}
    wanted = {"target": lookup.target, "toolchain": lookup.toolchain}
    differs = {
        name: {"asked": wanted[name], "given": given[name]}
        for name in given
        if given[name] != wanted[name]
    }
    match = {
        "kind": nearest.kind_of(row.target, row.toolchain.identity, lookup),
        "differs": differs,
        "reason": nearest.why_not_exact(row.target, lookup.target),
        "range": None,
    }
    return {"stale": "toolchain" in differs, "match": match}


@functools.lru_cache(maxsize=256)
def space_json(problem: str, target: str) -> Json | None:
    """Return the number of points in the space of a search.

    None for the target of another machine, whose caches nobody here knows, and for IREE's targets.
    """
    from tilewise.kernels.target import resolve
    from tilewise.search.space.space import Space

    try:
        space = Space(parse_problem(problem), resolve(target))
    except TargetError:
        return None
    if space.target.kind == "iree":
        return None
    return {"schedules": space.size, "exact": False}


def job_json(session: Session, job: models.Job) -> Json:
    """Return the object of `GET /v1/jobs/{id}`."""
    is_shared = job.spread > 1 and job.state == "running"
    return shown(
        (job,),
        schema.Job,
        problem=job.problem.canonical,
        key=job.problem.key,
        toolchain=job.toolchain.identity,
        trials={"asked": job.trials, **queue.counts(session, job.id)},
        elapsed_s=lease.elapsed_s(job),
        phase=phase_json(session, job),
        **_outcome(session, job),
        helpers=helper_offers.count(session, job.id, job.epoch) if is_shared else 0,
        links={name: f"/v1/jobs/{job.id}{path}" for name, path in LINKS.items()},
    )


def phase_json(session: Session, job: models.Job) -> Json | None:
    """Return the phase of a job's last run; None before the first one.

    Trials show the progress of a search, so they are counted.
    """
    if job.phase is None:
        return None
    if job.phase != "search":
        return {"name": job.phase, "done": job.phase_done, "total": job.phase_total}
    done = sum(queue.counts(session, job.id).values())
    return {"name": job.phase, "done": done, "total": job.trials}


def token_json(row: models.Token) -> Json:
    """Return a token's record without its secret."""
    return shown((row,), Token)


def suite_report_json(row: models.SuiteReport) -> Json:
    """Return a report of a suite, without its problems."""
    return shown((row,), SuiteReportHead, toolchain=row.toolchain.identity)


def report_of(row: models.SuiteReport) -> Json:
    """Return the whole report; raise DamagedError if its row is damaged."""
    try:
        return SuiteReport.checked(row.report).document()
    except ValueError as error:
        raise DamagedError(f"report {row.id} in the database is damaged: {error}") from error


def trial_json(row: models.Trial) -> Json:
    """Return a trial; `samples_us` are as measured, `time_us` is at machine speed factor 1."""
    tile = row.params.get("tile")
    return shown(
        (row,),
        schema.Trial,
        params=scalars_of(row.params),
        tile={**asdict(tile), "description": tile.description}
        if isinstance(tile, TilePoint)
        else None,
        interval=_interval(row.low, row.high),
        samples_us=[seconds * 1e6 for seconds in unpack_samples(row.samples)],
        cache=row.job.cache,
        max_error=_finite(row.max_error),
    )


def stored_trial_json(row: models.Trial, job: models.Job) -> Json:
    """Return a trial with its job, problem and target."""
    return {
        **trial_json(row),
        "job": job.id,
        "problem": job.problem.canonical,
        "target": job.target,
        "toolchain": job.toolchain.identity,
    }


def best_json(row: models.Schedule | models.PastSchedule) -> Json:
    """Return the best schedule and its speed."""
    return shown(
        (row,),
        schema.Best,
        instruction=instruction_text(row.problem.canonical, row.steps, row.machine),
        interval=[row.low, row.high],
        peak_fraction=row.gflops / row.peak_gflops,
        quality=history.quality(row),
    )


def past_json(row: models.PastSchedule) -> Json:
    """Return a result that is no longer the best, or never was."""
    state = "superseded" if row.was_best else "not_kept"
    interval, quality = [row.low, row.high], history.quality(row)
    return shown(
        (row,), schema.Past, state=state, interval=interval, quality=quality, job=row.job_id
    )


def instruction_text(problem: str, steps: Any, machine: models.Machine | None) -> str | None:
    """Return the multiply-add instruction of a schedule's kernel; None if unknown.

    A schedule that names none takes what the machine that timed it has.
    """
    try:
        nest = loop_nest(parse_problem(problem), Schedule.from_json(steps))
    except KernelsError:
        return None
    if nest.compute.instruction is not None:
        return nest.compute.instruction
    if machine is None or not is_sound(machine) or not machine.features:
        return None
    return instruction_of(nest, described(machine.cpu, map(str, machine.features)))


def proof_json(proof: models.Proof) -> Json:
    """Describe a proof; `failure` and `message` say why it is not served.

    `hash` and `steps` are of the script's schedule, which may differ from the fastest native one;
    `reason` says of a single result why that one has no script. `sha256` is of the script's text.
    `by` is the machine of the cluster worker that proved it, null for a process of this service.
    """
    script = proof.script
    return shown(
        (proof,),
        schema.Proof,
        max_error=_finite(proof.max_error),
        interval=_interval(proof.low, proof.high),
        hash=None if script is None else script.hash,
        steps=None if script is None else script.steps,
        sha256=None if script is None else script.sha256,
        by=None if script is None else prover_of(script.text),
    )


def _outcome(session: Session, job: models.Job) -> Json:
    """The stored best that a job found, else its fastest trial; and whether its result was kept."""
    stored = schedules.find_fresh(session, job.problem.key, Lookup.of(job))
    if stored is not None and stored.job_id == job.id and integrity.is_whole(stored):
        return {"best": best_json(stored), "kept": True, "verdict": _verdict(session, job, stored)}
    past = history.of_job(session, job) if job.state == "done" else None
    kept = past.was_best if past is not None and integrity.is_whole(past) else None
    verdict = None if past is None else _verdict(session, job, past)
    return {"best": _fastest_trial(session, job), "kept": kept, "verdict": verdict}


def _verdict(
    session: Session, job: models.Job, row: models.Schedule | models.PastSchedule
) -> str | None:
    """The verdict of a recheck on what it has measured."""
    return regressions.verdict_of(session, row) if job.kind == "recheck" else None


def _fastest_trial(session: Session, job: models.Job) -> Json | None:
    """The fastest trial of a job; no peak is known yet then."""
    trial = queue.best_trial(session, job.id)
    if trial is None:
        return None
    return shown(
        (trial,),
        schema.Best,
        instruction=instruction_text(job.problem.canonical, trial.steps, None),
        interval=_interval(trial.low, trial.high),
        peak_fraction=None,
    )


def moment(when: datetime) -> str:
    """Return a moment in UTC for JSON."""
    return when.isoformat().replace("+00:00", "Z")


def _finite(value: float | None) -> float | None:
    """JSON has no infinity, which is how far a wrong result can be off."""
    return value if value is not None and math.isfinite(value) else None


def _interval(low: float | None, high: float | None) -> list[float] | None:
    """Return the ends of an interval; None of one sample, whose ends are the same."""
    return None if low is None or high is None or low >= high else [low, high]
