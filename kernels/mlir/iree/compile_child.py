"""Becomes IREE's compiler, within a limit of memory.

    python -m tilewise.kernels.system.start PARENT tilewise.kernels.mlir.iree.compile_child \
        BYTES TOOL ARGUMENT...

The limit is set here, not between fork and exec of a process that has threads.
"""

import os
import resource
import sys


def main() -> None:
    """Limit this process and replace it by the tool."""
    memory, *command = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_AS, (int(memory), int(memory)))
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
