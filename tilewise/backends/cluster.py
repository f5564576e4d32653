"""The processes of a cluster."""

from typing import TYPE_CHECKING

from tilewise.backends.service_errors import converted_errors, settings
from tilewise.errors import BadInputError

if TYPE_CHECKING:
    from tilewise.service.settings import Settings


def schedule(host: str, port: int, *, uses_tls: bool) -> None:
    """Serve a scheduler until interrupted."""
    from tilewise.service.cluster.scheduler import run_scheduler

    _log(settings(None))
    with converted_errors():
        run_scheduler(host, port, uses_tls=uses_tls)


def drive(scheduler: str | None, service: str | None, database_url: str | None) -> None:
    """Run a driver until interrupted."""
    from tilewise.service.cluster.__main__ import drive as run

    found = _with_scheduler(settings(database_url, scheduler=scheduler, service_url=service))
    if not found.service_url:
        raise BadInputError("workers have to reach the service: give --service URL, or set "
                            "TILEWISE_SERVICE_URL")  # fmt: skip
    _log(found)
    with converted_errors():
        run(found)


def work(scheduler: str | None, host: str | None, *, measures_peaks: bool) -> None:
    """Run a worker until interrupted."""
    from tilewise.service.cluster.facts import facts_of_this_machine
    from tilewise.service.cluster.worker import run_worker

    found = _with_scheduler(settings(None, scheduler=scheduler))
    _log(found)
    with converted_errors():
        run_worker(found.scheduler, facts_of_this_machine(measures_peaks=measures_peaks), host)


def _with_scheduler(found: "Settings") -> "Settings":
    if not found.scheduler:
        raise BadInputError("no scheduler: give --scheduler tcp://HOST:PORT, or set "
                            "TILEWISE_SCHEDULER")  # fmt: skip
    return found


def _log(found: "Settings") -> None:
    from tilewise.service.telemetry.logs import configure_logs

    configure_logs(found.log_level, found.log_format)
