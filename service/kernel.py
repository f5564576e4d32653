"""The kernel of a stored result as a Python module, printed in a child process.

Printing one takes numba, which the service must not carry in its memory. The text depends
on the result and the toolchain alone, so an entity tag names it before it is printed.
"""

import functools
import hashlib
import json
import subprocess
from typing import Any

from kernels.process import child_command, child_environment
from service.errors import ConflictError

PRINT_LIMIT_S = 60
_PARTS = ("problem", "target", "toolchain", "best")


def kernel_source(result: dict[str, Any]) -> str:
    """What a module depends on, of the contract's result object, as canonical JSON."""
    return json.dumps({part: result[part] for part in _PARTS}, sort_keys=True)


def kernel_tag(source: str, toolchain: str) -> str:
    """A strong entity tag of the module that the present toolchain prints of `source`."""
    return hashlib.sha256(f"{toolchain}\n{source}".encode()).hexdigest()


@functools.lru_cache(maxsize=16)
def kernel_module(source: str) -> str:
    """The module; takes a second where it is not one of the last few.

    Raises:
        ConflictError: this machine or this toolchain cannot print it.
    """
    try:
        done = subprocess.run(
            child_command("kernels.native.export"),
            env=child_environment(),
            input=source,
            capture_output=True,
            text=True,
            timeout=PRINT_LIMIT_S,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        last = error.stderr.strip().rpartition("\n")[2]
        raise ConflictError(f"the kernel cannot be printed here: {last}") from error
    except subprocess.TimeoutExpired as error:
        raise ConflictError(f"printing the kernel took over {PRINT_LIMIT_S} s") from error
    return done.stdout
