"""Scripts of flavor air: made and proven when first asked for, then kept with the schedule.

No search is behind them: a model chooses the sizes, and the text depends on the problem and
the toolchain alone. A proof takes a second or two in a child process, so nothing is spent on
problems whose air script nobody wants, and a script is proven once. A failure is kept too.
"""

import hashlib
from dataclasses import dataclass
from importlib.util import find_spec

from sqlalchemy.orm import Session

from tilewise.kernels.errors import ScheduleError, UnsupportedError
from tilewise.kernels.mlir.air import AirScript, attempt
from tilewise.kernels.problem import parse_problem
from tilewise.service.db import checked, models
from tilewise.service.db.session import Sessions
from tilewise.service.errors import BusyError, ConflictError, NotFoundError
from tilewise.service.results import schedules, scripts

FLAVOR = "air"
LIMIT_S = 60.0
COMPILER = "iree"
WRITES = 12  # tries to store a proof, each as long as a request waits for a lock


@dataclass(frozen=True)
class Text:
    """A proven script and the sha256 of its text, hex."""

    text: str
    sha256: str


def make(sessions: Sessions, toolchain: str, key: str, target: str) -> Text:
    """The air script of the problem whose schedule is stored, proven here and kept.

    It takes seconds, so it is called in a flight of `Services.proofs`. Where another process
    was faster, that one's script is given.

    Raises:
        NotFoundError: no schedule is stored, the problem has no air script, or it failed.
        ConflictError: no compiler is here to prove it.
    """
    with checked.reading(sessions) as session:
        row = _row(session, key, target, toolchain)
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
            _keep(sessions, toolchain, key, target, made)
            break
        except BusyError:  # a proof is dear, and locks pass
            if not attempts_left:
                raise
    with checked.reading(sessions) as session:
        served = find(session, _row(session, key, target, toolchain))
    assert served is not None, "what was added is found, or raises"
    return served


def _keep(sessions: Sessions, toolchain: str, key: str, target: str, made: AirScript) -> None:
    with checked.writing(sessions) as session:
        row = _row(session, key, target, toolchain)
        if find(session, row) is None:
            scripts.add_script(session, row, FLAVOR, _identity(made), made.proof)


def find(session: Session, row: models.Schedule) -> Text | None:
    """What was proven; None when nothing was tried; NotFoundError when it failed."""
    script = scripts.proven_script(session, row, FLAVOR)
    if script is not None:
        return Text(script.text, script.sha256)
    failed = scripts.failed_proof(session, row, FLAVOR)
    if failed is None:
        return None
    said = failed.message.partition("\n")[0]
    raise NotFoundError(
        f"no proven {FLAVOR} script of {row.problem.canonical}: {failed.failure}: {said}"
    )


def _row(session: Session, key: str, target: str, toolchain: str) -> models.Schedule:
    row = schedules.find_schedule(session, key, target, toolchain)
    if row is None:
        raise NotFoundError(f"no schedule of a problem with the key {key} is stored for {target}")
    return row


def _identity(made: AirScript) -> tuple[str, list[dict[str, str | int]]]:
    """The hash and the steps of a schedule that is one value."""
    steps = made.schedule.to_json()
    return hashlib.sha256(repr(sorted(steps.items())).encode()).hexdigest()[:16], [steps]
