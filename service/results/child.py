"""What a child process prints, for what the service must not carry in its own memory."""

import subprocess

from tilewise.kernels.system.children import child_command, child_environment
from tilewise.service.errors import ConflictError

LIMIT_S = 60


def answer_of(module: str, what: str, given: str = "") -> str:
    """Return what `python -m module` prints for a text on stdin; `what` is for messages.

    Raises ConflictError with its last line on stderr if it fails or takes too long.
    """
    try:
        done = subprocess.run(
            child_command(module),
            env=child_environment(),
            input=given,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        last = error.stderr.strip().rpartition("\n")[2]
        raise ConflictError(f"{what} cannot be printed here: {last}") from error
    except subprocess.TimeoutExpired as error:
        raise ConflictError(f"printing {what} took over {LIMIT_S} s") from error
    return done.stdout
