"""A driver as a process of its own (`python -m tilewise.service.cluster`)."""

import argparse
import logging
import signal
import sys
import threading
from datetime import timedelta

from tilewise.kernels.system.children import die_with_parent
from tilewise.service.cluster.connection import Cluster
from tilewise.service.cluster.driver import Driver
from tilewise.service.db import schema
from tilewise.service.db.session import make_engine, make_sessions
from tilewise.service.errors import ServiceError
from tilewise.service.jobs.rechecks import OffPeak
from tilewise.service.settings import Settings
from tilewise.service.telemetry.logs import configure_logs

log = logging.getLogger(__name__)


def drive(settings: Settings, arguments: tuple[str, ...] = ()) -> None:
    """Run the driver until SIGINT or SIGTERM; wait for an unavailable database or scheduler.

    `arguments` are passed to `tilewise.service.workers` for every job.
    """
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    cluster = Cluster(settings.scheduler, settings.service_url, arguments)
    if not schema.prepare_once_there(settings.db, stopping):
        return
    engine = make_engine(settings.db)
    log.info("driver of %s for %s", settings.scheduler, settings.service_url)
    try:
        unserved = timedelta(seconds=settings.unserved_seconds)
        off_peak = OffPeak.of(settings.recheck_hours, settings.recheck_seconds)
        driver = Driver(make_sessions(engine), cluster, unserved, off_peak=off_peak)
        driver.run(stopping)
    finally:
        engine.dispose()


def main() -> int:
    """Run a driver with the settings of the environment."""
    parser = argparse.ArgumentParser(prog="python -m tilewise.service.cluster", description=__doc__)
    parser.add_argument("--parent", type=int, help="pid of the process to end with")
    options, others = parser.parse_known_args()
    settings = Settings()
    configure_logs(settings.log_level, settings.log_format)
    if options.parent is not None:
        die_with_parent(options.parent)
    try:
        drive(settings, tuple(others))
    except ServiceError as error:
        log.error("%s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
