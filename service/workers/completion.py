"""Start and end the child processes that run jobs, and explain their deaths."""

import contextlib
import os
import subprocess

from tilewise.kernels.system.children import (
    child_command,
    child_environment,
    end_group,
    signal_name,
)

GRACE_S = 10.0


def start(
    module: str, *arguments: str, environment: dict[str, str], stdin: int = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    """Start a module in a process group of its own, which ends with this process.

    What no other user may see belongs into `environment`, since a command line is public.
    """
    return subprocess.Popen(
        child_command(module, f"--parent={os.getpid()}", *arguments),
        env=child_environment(**environment),
        stdin=stdin,
        start_new_session=True,
    )


def end(child: subprocess.Popen[bytes], grace_s: float = GRACE_S) -> None:
    """Terminate a child and all that it has started; kill them after a while."""
    child.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(grace_s)
    end_group(child)


def reason_of(code: int) -> str:
    """Return why a child ended with a return code other than 0."""
    if code < 0:
        return f"signal {signal_name(-code)}"
    return f"exit status {code}; its log says more"
