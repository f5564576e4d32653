"""`tilewise top`: what a service does now."""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator

from tilewise.backends.choose import named_server
from tilewise.cli.command import Command
from tilewise.cli.options import add_server
from tilewise.cli.snapshot import Snapshot, rendered, take
from tilewise.errors import BadInputError, TilewiseError
from tilewise.kernels.quoting import quoted
from tilewise.requirements import BASE

INTERVAL_S = 2.0
LEAST_S = 0.2
UNBOUNDED = 2000  # characters of a line in a pipe, where nothing is cut off


def top(options: argparse.Namespace) -> None:
    """Show a service's jobs and machines, again and again."""
    server = named_server(options.server)
    if server is None:
        raise BadInputError("name a service by --server URL, or by TILEWISE_SERVER")
    interval_s = _interval(options.interval)
    from tilewise.client import Client

    with Client(server, patience_s=0) as client:  # which looks again by itself
        if options.once:
            _print(take(client), as_json=options.json)
        elif options.json or not sys.stdout.isatty():
            for found in _snapshots(lambda: take(client), interval_s):
                _print(found, as_json=options.json)
        else:
            _live(lambda: take(client), server, interval_s)


def _interval(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not LEAST_S <= found < float("inf"):
        raise BadInputError(f"--interval {quoted(text)} is not {LEAST_S:g} seconds or more")
    return found


def _snapshots(look: Callable[[], Snapshot], interval_s: float) -> Iterator[Snapshot]:
    """A snapshot each interval, until somebody interrupts."""
    try:
        while True:
            yield look()
            time.sleep(interval_s)
    except KeyboardInterrupt:
        return


def _print(found: Snapshot, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(found.to_json(), default=str) + "\n")
        sys.stdout.flush()
        return
    from rich.console import Console

    width = None if sys.stdout.isatty() else UNBOUNDED
    console = Console(width=width, highlight=False)
    console.print(rendered(found, console.width))


def _live(look: Callable[[], Snapshot], server: str, interval_s: float) -> None:
    """The whole screen, drawn anew; a service that is away is waited for."""
    from rich.console import Group, RenderableType
    from rich.live import Live
    from rich.text import Text

    last: Snapshot | None = None
    try:
        with Live(screen=True, auto_refresh=False) as screen:
            while True:
                fault = ""
                try:
                    last = look()
                except TilewiseError as error:
                    fault = f"{server} does not answer: {error}"
                parts: list[RenderableType] = [Text(fault, style="red")] if fault else []
                if last is not None:
                    parts.append(rendered(last, screen.console.width))
                screen.update(Group(*parts), refresh=True)
                time.sleep(interval_s)
    except KeyboardInterrupt:
        return


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be typed after `tilewise top`."""
    parser.add_argument("--once", action="store_true", help="one look, then leave")
    parser.add_argument(
        "--interval",
        default=str(INTERVAL_S),
        metavar="S",
        help=f"seconds from one look to the next (default: {INTERVAL_S:g})",
    )
    add_server(parser)


COMMANDS = (
    Command(
        "top",
        top,
        add_options,
        extra=BASE,
        at_service=BASE,
        examples=("top --server http://localhost:8000",),
    ),
)
