"""`tilewise scheduler`, `driver` and `worker`: jobs on many machines."""

import argparse

from tilewise.cli.command import Command
from tilewise.cli.commands.serve import LARGEST_PORT
from tilewise.cli.options import add_db
from tilewise.errors import BadInputError
from tilewise.requirements import require

EXTRA = "cluster"


def scheduler(options: argparse.Namespace) -> None:
    """Serve the Dask scheduler that a driver and workers meet at."""
    if not 0 <= options.port <= LARGEST_PORT:
        raise BadInputError(f"port={options.port} is out of range; give 0 to {LARGEST_PORT}")
    require("distributed", "scheduler", EXTRA)
    from tilewise.backends import cluster

    cluster.schedule(options.host, options.port, uses_tls=options.tls)


def driver(options: argparse.Namespace) -> None:
    """Give the jobs that wait in the database to the workers of a cluster."""
    require("distributed", "driver", EXTRA)
    from tilewise.backends import cluster

    cluster.drive(options.scheduler, options.service, options.db)


def worker(options: argparse.Namespace) -> None:
    """Time on this machine what a cluster's scheduler gives it."""
    require("distributed", "worker", EXTRA)
    from tilewise.backends import cluster

    cluster.work(options.scheduler, options.host, measures_peaks=not options.no_peaks)


def add_scheduler_options(parser: argparse.ArgumentParser) -> None:
    """What can be typed after `tilewise scheduler`."""
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on; default: 127.0.0.1"
    )
    parser.add_argument("--port", type=int, default=8786, help="to listen on; default: 8786")
    parser.add_argument(
        "--tls", action="store_true", help="speak TLS alone, as Dask's configuration says"
    )


def add_driver_options(parser: argparse.ArgumentParser) -> None:
    """What can be typed after `tilewise driver`."""
    _add_scheduler(parser)
    parser.add_argument(
        "--service", metavar="URL", help="by which workers reach it; default: TILEWISE_SERVICE_URL"
    )
    add_db(parser)


def add_worker_options(parser: argparse.ArgumentParser) -> None:
    """What can be typed after `tilewise worker`."""
    _add_scheduler(parser)
    parser.add_argument(
        "--host", help="address under which the others reach this worker; default: it is found out"
    )
    parser.add_argument(
        "--no-peaks", action="store_true", help="do not measure what this machine reaches"
    )


def _add_scheduler(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--scheduler",
        metavar="URL",
        help="tcp://HOST:PORT or tls://HOST:PORT; default: TILEWISE_SCHEDULER",
    )


COMMANDS = (
    Command(
        "scheduler",
        scheduler,
        add_scheduler_options,
        extra=EXTRA,
        examples=("scheduler --host 0.0.0.0",),
    ),
    Command(
        "driver",
        driver,
        add_driver_options,
        extra=EXTRA,
        examples=("driver --scheduler tcp://10.0.0.1:8786 --service http://10.0.0.1:8000",),
    ),
    Command(
        "worker",
        worker,
        add_worker_options,
        extra=EXTRA,
        examples=("worker --scheduler tcp://10.0.0.1:8786",),
    ),
)
