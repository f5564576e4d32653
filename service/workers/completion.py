"""How children that run jobs are ended, with what they have started, and why they died."""

import contextlib
import subprocess

from tilewise.kernels.system.children import end_group, signal_name

GRACE_S = 10.0


def end(child: subprocess.Popen[bytes], grace_s: float = GRACE_S) -> None:
    """Ask a child to end, then make it, with whatever it has started."""
    child.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(grace_s)
    end_group(child)


def reason_of(code: int) -> str:
    """Why a child ended with a return code that is not 0."""
    if code < 0:
        return f"signal {signal_name(-code)}"
    return f"exit status {code}; its log says more"
