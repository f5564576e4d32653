"""`tilewise serve`, `db`, `scheduler`, `driver` and `worker`."""

import argparse
import signal

from tilewise.cli.command import DB, Argument, Command, arg, check_range, flag, in_group, only_if
from tilewise.cli.render import print_mapping
from tilewise.requirements import require
from tilewise.schema.base import LARGEST_PORT

EXTRA = "cluster"
MOST_WORKERS = 64
MOST_DAYS, LEAST_SAMPLES, MOST_SAMPLES = 36500, 3, 1000


def serve(options: argparse.Namespace) -> None:
    """Serve the HTTP API with embedded workers."""
    check_range("port", options.port, 0, LARGEST_PORT)
    check_range("workers", options.workers, 0, MOST_WORKERS)
    from tilewise.backends import administration

    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # by which uvicorn ends the process
    administration.serve(options.host, options.port, options.workers, options.db)


def database(options: argparse.Namespace) -> None:
    """Upgrade the database to this version's schema, check it, or thin old samples."""
    from tilewise.backends import administration

    only_if(options.action == "prune", options, OF_PRUNE, f"db {options.action} takes no {{}}")
    if options.action != "prune":
        print_mapping(administration.database(options.action, options.db), as_json=options.json)
        return
    check_range("older-than", options.older_than, 0, MOST_DAYS, " days")
    check_range("keep-samples", options.keep_samples, LEAST_SAMPLES, MOST_SAMPLES)
    limits = options.older_than, options.keep_samples
    state = administration.prune(*limits, options.db, dry_run=options.dry_run)
    print_mapping(state, as_json=options.json)
    if options.vacuum and not options.dry_run:
        administration.vacuum(options.db)


def scheduler(options: argparse.Namespace) -> None:
    """Run the Dask scheduler of a cluster."""
    check_range("port", options.port, 0, LARGEST_PORT)
    require("distributed", "scheduler", EXTRA)
    from tilewise.backends import cluster

    cluster.schedule(options.host, options.port, uses_tls=options.tls)


def driver(options: argparse.Namespace) -> None:
    """Distribute queued jobs of the database to the workers of a cluster."""
    require("distributed", "driver", EXTRA)
    from tilewise.backends import cluster

    cluster.drive(options.scheduler, options.service, options.db)


def worker(options: argparse.Namespace) -> None:
    """Run jobs of a cluster on this machine."""
    require("distributed", "worker", EXTRA)
    from tilewise.backends import cluster

    cluster.work(options.scheduler, options.host, measures_peaks=not options.no_peaks)


HOST = arg("--host", "address to listen on; default: 127.0.0.1", default="127.0.0.1")
SCHEDULER = arg(
    "--scheduler", "tcp://HOST:PORT or tls://HOST:PORT; default: TILEWISE_SCHEDULER", metavar="URL"
)
SERVICE = "URL of the service for workers; default: TILEWISE_SERVICE_URL"
REACHED = "address of this worker for the others; default: detected"
OLDER = "thin the samples of older trials; default: 90"
KEEP = "samples kept per trial; default: 9"
OF_PRUNE = {"older_than": 90.0, "keep_samples": 9, "dry_run": False, "vacuum": False}


def _port(default: int) -> Argument:
    return arg("--port", f"port to listen on; default: {default}", type=int, default=default)


COMMANDS = (
    Command("serve", serve,
            (HOST, _port(8000),
             arg("--workers", "embedded workers; default: 1", type=int, default=1, metavar="N"),
             DB),
            examples=("serve", "serve --host 0.0.0.0 --port 8000 --workers 2")),
    Command(
        "db", database, (
            arg("action", "what to do", choices=("upgrade", "check", "prune")),
            DB,
            *in_group(
                "prune",
                arg("--older-than", OLDER, type=float, metavar="DAYS"),
                arg("--keep-samples", KEEP, type=int, metavar="N"),
                flag("--dry-run", "only report what would be done"),
                flag("--vacuum", "return free space to the disk; takes a while"),
            ),
        ),
        examples=("db check", "db prune --older-than 30 --dry-run"),
    ),
    Command("scheduler", scheduler,
            (HOST, _port(8786), flag("--tls", "require TLS, as configured in Dask")),
            extra=EXTRA, examples=("scheduler --host 0.0.0.0",)),
    Command("driver", driver, (SCHEDULER, arg("--service", SERVICE, metavar="URL"), DB),
            extra=EXTRA,
            examples=("driver --scheduler tcp://10.0.0.1:8786 --service http://10.0.0.1:8000",)),
    Command("worker", worker,
            (SCHEDULER, arg("--host", REACHED),
             flag("--no-peaks", "do not measure this machine's peaks")),
            extra=EXTRA, examples=("worker --scheduler tcp://10.0.0.1:8786",)),
)  # fmt: skip
