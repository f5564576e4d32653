"""The command `tilewise`."""

import argparse
import gc
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from errno import EIO, ENOSPC
from pathlib import Path

from tilewise.backends.choose import named_server
from tilewise.cli.command import Command
from tilewise.cli.commands import completion
from tilewise.cli.parser import make_parser
from tilewise.errors import TilewiseError
from tilewise.kernels import errors
from tilewise.kernels.quoting import one_line
from tilewise.kernels.system.extensions import load_extensions
from tilewise.requirements import OR_SERVER, lacking, not_installed
from tilewise.search.errors import BudgetError, SearchError

OK, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
OWN = ("kernels", "search", "service", "tilewise", "migrations")
GARBAGE = 100_000  # objects that a command makes before the first of them are looked at
FAILURES = errors.CompilerAbsentError, errors.CompilerError, errors.LoweringError, errors.ProofError
_START = 19  # of the fields behind the name in /proc/self/stat: ticks since the machine's start


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; an error is one line on stderr.

    0 is success, 2 bad input, 3 something that does not exist, 1 anything else.
    """
    _open_closed_streams()
    if sys.stdout is None:
        return _say("stdout is closed; there is nowhere to print to", FAILED)
    if arguments is None:  # what a command imports stays; looking at it again takes a tenth of it
        gc.set_threshold(GARBAGE)
        with suppress(ValueError):  # not the main thread
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    began = process_began() if arguments is None else time.monotonic()
    parser = make_parser()
    completion.complete(parser)
    options = parser.parse_args(arguments)
    options.began = began
    try:
        load_extensions()
        options.run(options)
        sys.stdout.flush()
    except TilewiseError as error:
        return _say(error, error.exit_code)
    except FAILURES as error:
        return _say(error, FAILED)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in OWN:
            raise
        return _say(_not_installed(options, error.name), FAILED)
    except (errors.KernelsError, BudgetError) as error:
        return _say(error, BAD_INPUT)
    except SearchError as error:
        return _say(error, FAILED)
    except KeyboardInterrupt:
        return _say("interrupted", INTERRUPTED)
    except OSError as error:
        return _end_of(error)
    return OK


def _open_closed_streams() -> None:
    """Open /dev/null for stdin and stderr if the caller closed them."""
    for name, mode in (("stdin", "r"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


def _end_of(error: OSError) -> int:
    """Print an error that no command handles; leave nothing for the interpreter to flush."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):  # whoever read the output has gone
        return FAILED
    where = "cannot write the output" if error.errno in (ENOSPC, EIO) else error.filename
    return _say(": ".join(str(one) for one in (where, error.strerror or error) if one), FAILED)


def _not_installed(options: argparse.Namespace, module: str) -> str:
    """Name the extra that a command lacks; `--server` only where a service does the work."""
    command: Command = options.command
    database = getattr(options, "db", None)
    server = None if database else getattr(options, "server", None)  # both are refused elsewhere
    is_at_service = command.at_service is not None and named_server(server, database)
    extra = command.at_service if is_at_service else command.extra
    by = command.name
    if not extra or not lacking(extra):
        return f"{by} needs {module}, which is not installed"
    otherwise = OR_SERVER if command.is_light_at_service else ""
    return not_installed(by, module, extra, otherwise)


def _say(error: object, code: int) -> int:
    sys.stderr.write(f"tilewise: {one_line(error)}\n")
    return code


def process_began() -> float:
    """Return the moment of `time.monotonic` at which this process began, or now."""
    now = time.monotonic()
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[_START]) / os.sysconf(
            "SC_CLK_TCK"
        )
    except (OSError, ValueError, IndexError, AttributeError):
        return now
    return now - age if age >= 0 else now
