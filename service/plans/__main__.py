"""The process that makes one claimed plan and ends: `python -m service.plans --plan ID`."""

import argparse
import logging
import signal
import sys
from importlib import import_module
from types import FrameType
from typing import Any

from kernels.errors import KernelsError
from kernels.system.children import die_with_parent
from search.errors import SearchError
from service.db import schema
from service.db.session import STATEMENT_S, Sessions, make_engine, make_sessions, reading, writing
from service.errors import PASSING, DamagedError, LeaseLostError, PlanError, ServiceError
from service.jobs.heartbeat import Heartbeat
from service.plans import endings, lease, orders
from service.plans.lease import PlanLease
from service.plans.making import Made
from service.plans.rows import Json
from service.runs.patience import patiently
from service.settings import Settings
from service.telemetry.logs import bind, configure_logs

MAKER = "service.plans.making:make"
UNREACHABLE = 75  # EX_TEMPFAIL of sysexits.h: the database was away for long
CONNECTIONS = 2  # the run and its heartbeat

log = logging.getLogger(__name__)


def main(arguments: list[str] | None = None) -> int:
    """Make one plan.

    Returns:
        0 when the end of the run is kept; `UNREACHABLE` when the database was away for long;
        anything else counts as a crash.
    """
    options = _parser().parse_args(arguments)
    settings = Settings(db=options.db) if options.db else Settings()
    configure_logs(settings.log_level, settings.log_format)
    bind(plan=options.plan, epoch=options.epoch)
    signal.signal(signal.SIGTERM, _exit)
    if options.parent is not None:
        die_with_parent(options.parent)
    held = PlanLease(options.plan, options.owner, options.epoch)
    engine = make_engine(settings.db, connections=CONNECTIONS, statement_s=STATEMENT_S)
    try:
        patiently(lambda _: schema.check(engine), held.name)
        run(make_sessions(engine), held, _load(options.maker))
    except LeaseLostError as error:
        log.info("%s", error)
    except PASSING as error:
        log.error("%s", error)
        return UNREACHABLE
    except ServiceError as error:
        log.error("%s", error)
        return 1
    finally:
        engine.dispose()
    return 0


def run(sessions: Sessions, held: PlanLease, make: Any) -> None:
    """Make the plan of a lease and store it; one that is interrupted from outside waits again.

    Args:
        sessions: of the database.
        held: the run's lease.
        make: `service.plans.making.make`.

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


def _load(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m service.plans", description=__doc__)
    parser.add_argument("--db", help="database URL; default TILEWISE_DB")
    parser.add_argument("--plan", type=int, required=True, help="the plan's number")
    parser.add_argument("--owner", default="", help="holder of the plan's lease")
    parser.add_argument("--epoch", type=int, default=0, help="number of this run")
    parser.add_argument("--parent", type=int, help="pid of the process to end with")
    parser.add_argument("--maker", default=MAKER, help="module:function that makes plans")
    return parser


def _exit(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
