"""Check stored rows against their digests before they are served as proven.

A schedule and a proof each carry a digest of what they claim and of the work that they claim it
of. A row whose digest, texts or numbers disagree is refused, logged and counted.

The digest has no key. It finds damage, and edits by users who do not know of it. It does not
find an edit by a user who may write to the database and computes the digest anew. Jobs and
their trials, machines and moments are not part of any digest.
"""

import hashlib
import json
import logging
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from tilewise.service.db import models
from tilewise.service.errors import TamperedError
from tilewise.service.results import stored
from tilewise.service.results.stored import ResultKey

TUNE_AGAIN = "tune the problem again (tilewise tune, POST /v1/jobs), which replaces it"

log = logging.getLogger(__name__)

Result = models.Schedule | models.PastSchedule | models.TunedRange

_SCHEDULE = (
    *("job_id", "hash", "steps", "gflops", "low", "high", "time_us", "peak_gflops"),
    *("scratch_bytes", "peers", "measured", "budget", "elapsed_s", "complete"),
)
_PROOF = (
    *("ok", "applied", "executed", "max_error", "tolerance", "gflops", "low", "high"),
    *("time_us", "mlir", "failure", "message"),
)
_RANGE = ("job_id", "family", "result", "loss_mean", "loss_worst", "budget", "elapsed_s")
_SCRIPT = ("flavor", "hash", "steps", "sha256")
_FLOATS = {
    *("gflops", "low", "high", "time_us", "peak_gflops"),
    *("elapsed_s", "max_error", "tolerance", "loss_mean", "loss_worst"),
}

_compact = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
_refused: Counter[str] = Counter()
_lock = threading.Lock()


def result_digest(work: ResultKey, row: Result) -> str:
    """Return the digest of a result's current columns, 64 hex digits."""
    if isinstance(row, models.TunedRange):
        return _digest("range", work, _values(row, _RANGE))
    return _digest("schedule", work, _values(row, _SCHEDULE))


def proof_digest(work: ResultKey, proof: models.Proof) -> str:
    """Return the digest of a proof and its script, 64 hex digits."""
    script = None if proof.script is None else _values(proof.script, _SCRIPT)
    return _digest("proof", work, {**_values(proof, _PROOF), "script": script})


def check_work(work: ResultKey) -> None:
    """Raise TamperedError unless the problem has the key that names it."""
    if (fault := _work_fault(work)) is not None:
        raise refusal("problems", f"with key {work.key!s:.64}", fault)


def check_result(row: Result) -> None:
    """Raise TamperedError unless a result and its problem are as they were stored."""
    if (fault := _result_fault(row)) is not None:
        raise refusal(row.__tablename__, row.id, fault)


def check_proof(work: ResultKey, proof: models.Proof) -> None:
    """Raise TamperedError unless a proof, its script and its problem are as they were stored."""
    if (fault := _proof_fault(work, proof)) is not None:
        raise refusal("proofs", proof.id, fault)


def is_whole(row: Result) -> bool:
    """Return whether a result and its job match their digests; proofs are not checked."""
    return row.job is not None and _result_fault(row) is None


def without_job(row: models.Schedule) -> TamperedError:
    """Return the error for a schedule whose job is missing."""
    return refusal("schedules", row.id, "the job that found it is not there")


def is_proof_whole(work: ResultKey, proof: models.Proof) -> bool:
    """Return whether a proof and its script match their digest."""
    return _proof_fault(work, proof) is None


def tampered_proofs(session: Session, schedule: models.Schedule) -> list[models.Proof]:
    """Return a schedule's proofs, of any flavor, that do not match their digest."""
    work = ResultKey.of(schedule)
    proofs = stored.all_proofs(session, schedule.id)
    return [proof for proof in proofs if not is_proof_whole(work, proof)]


def refusal(table: str, row: int | str, fault: str, way_out: str = TUNE_AGAIN) -> TamperedError:
    """Log and count a refused row, and return the error for it."""
    message = (
        f"row {row} of {table} is not what was stored: {fault}; {way_out}, "
        "or stop the service and restore a copy of the database"
    )
    with _lock:
        _refused[table] += 1
    log.error("%s", message)
    return TamperedError(message)


def refused() -> dict[str, int]:
    """Return how many rows this process has refused, by table."""
    with _lock:
        return dict(_refused)


def _result_fault(row: Result) -> str | None:
    work = ResultKey.of(row)
    fault = _work_fault(work)
    if fault is None and not isinstance(row, models.TunedRange):
        fault = _steps_fault(row.hash, row.steps)
    if fault is None and not isinstance(row.created_at, datetime):
        fault = "the moment at which it was stored is none"
    return fault or _digest_fault(row.digest, lambda: result_digest(work, row))


def _proof_fault(work: ResultKey, proof: models.Proof) -> str | None:
    fault = _work_fault(work)
    if fault is None and proof.script is not None:
        fault = _script_fault(proof.script)
    if fault is None and proof.ok:
        fault = _proven_fault(proof)
    return fault or _digest_fault(proof.digest, lambda: proof_digest(work, proof))


def _work_fault(work: ResultKey) -> str | None:
    if _sha256(work.canonical) == work.key:
        return None
    return "the canonical string of its problem does not have the problem's key"


def _steps_fault(name: str, steps: object) -> str | None:
    """What is wrong with steps and their hash, as `tilewise.kernels.schedule` has it."""
    try:
        found = hashlib.sha256(_compact(steps).encode()).hexdigest()[:16]
    except (TypeError, ValueError):
        return "its steps are not JSON"
    return None if found == name else "its steps do not have its hash"


def _script_fault(script: models.Script) -> str | None:
    if _sha256(script.text) != script.sha256:
        return "the text of its script does not have the script's SHA-256"
    # A script of flavor air has no steps of a schedule; what names it is in the digest alone.
    return None if script.flavor == "air" else _steps_fault(script.hash, script.steps)


def _proven_fault(proof: models.Proof) -> str | None:
    if proof.script is None:
        return "it proves a script that is not there"
    if not (proof.applied and proof.executed):
        return "it proves a script that was not executed"
    error, tolerance = proof.max_error, proof.tolerance
    if not isinstance(error, float) or not isinstance(tolerance, float):
        return "its max_error or its tolerance is no number"
    if not (math.isfinite(error) and error <= tolerance):
        return f"its max_error={error!r} is beyond its tolerance={tolerance!r}"
    return None


def _digest_fault(stored: str | None, compute: Callable[[], str]) -> str | None:
    if stored is None:
        return "it has no digest"
    try:
        computed = compute()
    except (TypeError, ValueError):
        return "a value in it is not of its column's type"
    return None if computed == stored else "its values do not have its digest"


def _digest(kind: str, work: ResultKey, values: dict[str, Any]) -> str:
    of = [kind, work.key, work.canonical, work.target, work.toolchain, work.cache]
    return hashlib.sha256(_compact([of, values]).encode()).hexdigest()


def _values(row: object, names: Iterable[str]) -> dict[str, Any]:
    # Past SQLAlchemy's descriptors, which take longer than all else where rows are many.
    loaded = vars(row)
    found = {name: loaded[name] if name in loaded else getattr(row, name) for name in names}
    return {name: _plain(v) if name in _FLOATS else v for name, v in found.items()}


def _plain(value: float | None) -> float | None:
    """A number as every database gives it back: SQLite has neither NaN nor -0.0."""
    return None if value is None or math.isnan(value) else float(value) + 0.0


def _sha256(text: object) -> str | None:
    """Of the text in UTF-8; None where an edit has left something that is no text."""
    return hashlib.sha256(text.encode()).hexdigest() if isinstance(text, str) else None
