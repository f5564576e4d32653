"""Scripts of stored results, their proofs, and the script that is served."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from sqlalchemy import delete
from sqlalchemy.orm import Session

from tilewise.kernels.errors import ScheduleError, UnsupportedError
from tilewise.kernels.mlir.air import AirScript, attempt
from tilewise.kernels.mlir.proof.proof import ScriptProof
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.target import target_kind
from tilewise.kernels.target.model import Kind
from tilewise.service.db import checked, models
from tilewise.service.db.session import Sessions
from tilewise.service.errors import BusyError, ConflictError, NotFoundError
from tilewise.service.results import integrity, schedules, stored
from tilewise.service.results.schedules import key_of
from tilewise.service.results.stored import Lookup, ResultKey

SEARCHED: dict[Kind, str] = {"cpu": "cpu", "iree": "iree-spec"}
"""The flavor of script that a search proves, by whose code its target runs."""


_OF_PROOF = (
    *("applied", "executed", "max_error", "tolerance", "gflops", "time_us", "mlir"),
    *("failure", "message"),
)


def searched_flavor(target: str) -> str:
    """Return the flavor of script that a search on a target proves."""
    return SEARCHED[target_kind(target)]


def add_script(
    session: Session,
    row: models.Schedule,
    flavor: str,
    spelled: tuple[str, list[Any]],
    proof: ScriptProof,
) -> None:
    """Store a proof, and the script if there is one.

    `spelled` are hash and steps of the script's schedule. Only a proof with `ok` is served.
    """
    low, high = proof.interval or (None, None)
    tried = models.Proof(
        schedule_id=row.id,
        script=_script(row, flavor, spelled, proof.script) if proof.script else None,
        ok=proof.ok and bool(proof.script),
        low=low,
        high=high,
        **{name: getattr(proof, name) for name in _OF_PROOF},
    )
    add_proof(session, row, tried)


def add_proof(session: Session, row: models.Schedule, proof: models.Proof) -> None:
    """Store a proof of a schedule's script, sealed."""
    proof.digest = integrity.proof_digest(ResultKey.of(row), proof)
    session.add(proof)


def _script(
    row: models.Schedule, flavor: str, spelled: tuple[str, list[Any]], text: str
) -> models.Script:
    name, steps = spelled
    return models.Script(
        schedule_id=row.id,
        flavor=flavor,
        hash=name,
        steps=steps,
        text=text,
        sha256=hashlib.sha256(text.encode()).hexdigest(),
    )


def searched_proofs(session: Session, row: models.Schedule) -> list[models.Proof]:
    """Return the proofs made by searches."""
    proofs = stored.all_proofs(session, row.id)
    flavor = searched_flavor(row.target)
    return [proof for proof in proofs if proof.script is None or proof.script.flavor == flavor]


def drop_proofs(session: Session, proofs: Sequence[models.Proof]) -> None:
    """Delete proofs with their scripts."""
    scripts = [proof.script.id for proof in proofs if proof.script is not None]
    session.execute(delete(models.Proof).where(models.Proof.id.in_([p.id for p in proofs])))
    session.execute(delete(models.Script).where(models.Script.id.in_(scripts)))


@dataclass(frozen=True)
class ServedScript:
    """The best schedule of a problem, and its fastest proven script, if there is one."""

    work: ResultKey
    script: models.Script | None


def served_script(
    session: Session, problem: Problem | str, lookup: Lookup, flavor: str = "cpu"
) -> ServedScript | None:
    """Return the script of what `find_schedule` finds, in one query; None if it finds nothing.

    Raises TamperedError if a row was changed.
    """
    found = stored.best_proof(session, key_of(problem), lookup, flavor)
    if found is None:
        return None
    work, proof = found
    return ServedScript(work, _proven(work, proof))


def find_script(
    session: Session, problem: Problem | str, lookup: Lookup, flavor: str = "cpu"
) -> models.Script | None:
    """Return the fastest proven script of the stored schedule; raise TamperedError."""
    found = served_script(session, problem, lookup, flavor)
    return None if found is None else found.script


def proven_script(
    session: Session, schedule: models.Schedule, flavor: str = "cpu"
) -> models.Script | None:
    """Return the fastest proven script of this schedule; raise TamperedError."""
    return _proven(ResultKey.of(schedule), stored.fastest_proof(session, schedule.id, flavor))


def failed_proof(session: Session, schedule: models.Schedule, flavor: str) -> models.Proof | None:
    """Return the latest failed attempt at a script of a flavor; raise TamperedError."""
    found = stored.latest_failure(session, schedule.id, flavor)
    if found is not None:
        integrity.check_proof(ResultKey.of(schedule), found)
    return found


def _proven(work: ResultKey, proof: models.Proof | None) -> models.Script | None:
    """The script of a proof, once both are found to be what was stored."""
    if proof is None:
        integrity.check_work(work)
        return None
    integrity.check_proof(work, proof)
    return proof.script


FLAVOR = "air"
LIMIT_S = 60.0
COMPILER = "iree"
WRITES = 12  # tries to store a proof, each as long as a request waits for a lock


@dataclass(frozen=True)
class ScriptText:
    """A proven script and the sha256 of its text, hex."""

    text: str
    sha256: str


def make(sessions: Sessions, key: str, lookup: Lookup) -> ScriptText:
    """Make, prove and keep the air script of the problem whose schedule is stored.

    It takes seconds: call it through `Services.proofs`. If another process was faster, its
    script is returned. Raises NotFoundError if no schedule is stored, there is no air script or it
    failed, ConflictError without a compiler.
    """
    with checked.reading(sessions) as session:
        row = _row(session, key, lookup)
        stored = find(session, row)
        problem = parse_problem(row.problem.canonical)
    if stored is not None:
        return stored
    if find_spec(COMPILER) is None:
        raise ConflictError("an air script needs iree-base-compiler here to be proven")
    try:
        made = attempt(problem, seconds=LIMIT_S)
    except (UnsupportedError, ScheduleError) as error:
        raise NotFoundError(f"no {FLAVOR} script of {problem}: {error}") from error
    for attempts_left in reversed(range(WRITES)):
        try:
            _keep(sessions, key, lookup, made)
            break
        except BusyError:  # a proof is dear, and locks pass
            if not attempts_left:
                raise
    with checked.reading(sessions) as session:
        served = find(session, _row(session, key, lookup))
    assert served is not None, "what was added is found, or raises"
    return served


def _keep(sessions: Sessions, key: str, lookup: Lookup, made: AirScript) -> None:
    with checked.writing(sessions) as session:
        row = _row(session, key, lookup)
        if find(session, row) is None:
            steps = made.schedule.to_json()  # of a schedule that is one value
            named = hashlib.sha256(repr(sorted(steps.items())).encode()).hexdigest()[:16]
            add_script(session, row, FLAVOR, (named, [steps]), made.proof)


def find(session: Session, row: models.Schedule) -> ScriptText | None:
    """Return the proven script, None without an attempt; raise NotFoundError if it failed."""
    script = proven_script(session, row, FLAVOR)
    if script is not None:
        return ScriptText(script.text, script.sha256)
    failed = failed_proof(session, row, FLAVOR)
    if failed is None:
        return None
    reason = failed.message.partition("\n")[0]
    raise NotFoundError(
        f"no proven {FLAVOR} script of {row.problem.canonical}: {failed.failure}: {reason}"
    )


def _row(session: Session, key: str, lookup: Lookup) -> models.Schedule:
    row = schedules.find_schedule(session, key, lookup)
    if row is None:
        place = lookup.target
        raise NotFoundError(f"no schedule of a problem with the key {key} is stored for {place}")
    return row
