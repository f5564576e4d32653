"""How Dask is set up here: for few long tasks, on machines that must be quiet.

Dask is imported inside functions: the service's own process never needs it.
"""

import logging
from importlib import import_module
from typing import Any

from tilewise.service.errors import WorkerError

INSTALL = "install tilewise[cluster]"
UNUSABLE = (OSError, TimeoutError, RuntimeError, TypeError, ValueError)
"""What Dask raises where a connection fails, or where TLS is wanted and not configured."""

# `docs/design/cluster.md` has the reasons.
SETTINGS: dict[str, Any] = {
    "distributed.scheduler.allowed-failures": 0,
    "distributed.scheduler.worker-ttl": "30s",
    "distributed.scheduler.no-workers-timeout": "60s",
    "distributed.scheduler.work-stealing": False,
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.admin.system-monitor.disk": False,
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.tick.cycle": "5s",
    "distributed.diagnostics.nvml": False,
    "distributed.comm.timeouts.connect": "5s",
}


def configure(level: int = logging.CRITICAL) -> None:
    """Set Dask up in this process; what its own configuration files and variables say of TLS stays.

    Args:
        level: of Dask's own messages; drivers and workers say themselves what concerns anybody of
            a connection that has gone.

    Raises:
        WorkerError: Dask is not installed.
    """
    try:
        import dask

        import_module("distributed")  # brings the defaults that are set below
    except ImportError as error:
        raise WorkerError(f"a cluster needs Dask ({error}); {INSTALL}") from error
    dask.config.set(SETTINGS)
    logging.getLogger("distributed").setLevel(level)
