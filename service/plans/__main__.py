"""Make one claimed plan and end: `python -m tilewise.service.plans --plan ID`."""

import argparse
import logging
import sys
from functools import partial
from typing import Any

from tilewise.kernels.errors import KernelsError
from tilewise.search.errors import SearchError
from tilewise.service.db import schema
from tilewise.service.db.session import (
    STATEMENT_S,
    Sessions,
    make_engine,
    make_sessions,
    reading,
    writing,
)
from tilewise.service.errors import DamagedError, PlanError
from tilewise.service.jobs.heartbeat import Heartbeat
from tilewise.service.plans import endings, lease, orders
from tilewise.service.plans.lease import PlanLease
from tilewise.service.plans.making import Made
from tilewise.service.plans.rows import Json
from tilewise.service.runs.patience import patiently
from tilewise.service.runs.process import load, parser_of, run_process
from tilewise.service.settings import Settings

MAKER = "tilewise.service.plans.making:make"
CONNECTIONS = 2  # the run and its heartbeat

log = logging.getLogger(__name__)


def main(arguments: list[str] | None = None) -> int:
    """Make one plan.

    Returns:
        As `tilewise.service.runs.process.run_process`.
    """
    options = _parser().parse_args(arguments)
    return run_process(options, partial(_make, options), plan=options.plan)


def _make(options: argparse.Namespace, settings: Settings) -> None:
    held = PlanLease(options.plan, options.owner, options.epoch)
    engine = make_engine(settings.db, connections=CONNECTIONS, statement_s=STATEMENT_S)
    try:
        patiently(lambda _: schema.check(engine), held.name)
        run(make_sessions(engine), held, load(options.maker))
    finally:
        engine.dispose()


def run(sessions: Sessions, held: PlanLease, make: Any) -> None:
    """Make the plan of a lease and store it; one that is interrupted from outside waits again.

    Args:
        sessions: of the database.
        held: the run's lease.
        make: `tilewise.service.plans.making.make`.

    Raises:
        LeaseLostError: another run has the plan.
        DatabaseError: it is away for long.
    """
    try:
        with Heartbeat(sessions, held):
            made = _made(sessions, held, make)
    except (KernelsError, SearchError, PlanError, DamagedError) as error:
        message = str(error)
        _end(sessions, held, "failed", lambda session: endings.failed(session, held, message))
    except (KeyboardInterrupt, SystemExit):
        with writing(sessions) as session:
            lease.release(session, held)
        raise
    else:
        _end(sessions, held, "done", lambda session: endings.done(session, held, made))


def _made(sessions: Sessions, held: PlanLease, make: Any) -> Made:
    def read(_is_repeated: bool) -> tuple[orders.Order, bytes]:
        with reading(sessions) as session:
            return orders.read(session, held.plan_id)

    def tell(phase: str, plan: Json | None) -> None:
        endings.note(sessions, held, phase, plan)

    order, module = patiently(read, held.name)
    made: Made = make(order, module, tell)
    return made


def _end(sessions: Sessions, held: PlanLease, state: str, end: Any) -> None:
    """End the plan; a repetition finds it ended where the answer alone was lost."""

    def step(is_repeated: bool) -> bool:
        with writing(sessions) as session:
            if is_repeated and lease.has_left(session, held, state):
                return True
            is_ended: bool = end(session)
            return is_ended

    is_ours = patiently(step, f"{held.name}, {state}")
    log.info("%s", state if is_ours else "it was cancelled or taken over meanwhile")


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("tilewise.service.plans", __doc__, "plan")
    parser.add_argument("--maker", default=MAKER, help="module:function that makes plans")
    return parser


if __name__ == "__main__":
    sys.exit(main())
