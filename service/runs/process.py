"""The frame of a process that runs one claimed job and ends: its options, its exit code."""

import argparse
import logging
import signal
from collections.abc import Callable
from importlib import import_module
from types import FrameType
from typing import Any

from tilewise.kernels.system.children import die_with_parent
from tilewise.service.errors import PASSING, LeaseLostError, ServiceError, UnreachableError
from tilewise.service.settings import Settings
from tilewise.service.telemetry.logs import bind, configure_logs

UNREACHABLE = 75  # EX_TEMPFAIL of sysexits.h: the service could not be asked, or the database

log = logging.getLogger(__name__)


def parser_of(module: str, about: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options of a module that runs a claimed job, and its docstring."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=about)
    parser.add_argument("--db", help="database URL; default TILEWISE_DB")
    parser.add_argument("--job", type=int, required=True, help="the job's number")
    parser.add_argument("--owner", default="", help="holder of the job's lease in the database")
    parser.add_argument("--epoch", type=int, default=0, help="number of this run, likewise")
    parser.add_argument("--parent", type=int, help="pid of the process to end with")
    return parser


def run_process(
    options: argparse.Namespace, run: Callable[[Settings], None], **named: object
) -> int:
    """Run `run` and log what it raises, with `named` in each line; return the exit code.

    0: the run's end is stored, or the run belongs to another. `UNREACHABLE`: the service or
    database was away for long. Anything else counts as a crash.
    """
    settings = Settings(db=options.db) if options.db else Settings()
    configure_logs(settings.log_level, settings.log_format)
    bind(**named, epoch=options.epoch)
    signal.signal(signal.SIGTERM, _exit)
    if options.parent is not None:
        die_with_parent(options.parent)
    try:
        run(settings)
    except LeaseLostError as error:
        log.info("%s", error)
    except (UnreachableError, *PASSING) as error:
        log.error("%s", error)
        return UNREACHABLE
    except ServiceError as error:
        log.error("%s", error)
        return 1
    return 0


def load(path: str) -> Any:
    """The object at `module:name`, for it loads compilers, which the service must not."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


def _exit(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + signal.SIGTERM)
