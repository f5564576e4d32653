"""Becomes IREE's compiler, within a limit of memory, and ends with whoever asked for it.

    python -m search.peers.iree_compile BYTES TOOL ARGUMENT...

The limit is set here and not between fork and exec of a process that has threads.
"""

import os
import resource
import sys

from kernels.process import die_with_parent


def main() -> None:
    """Limit this process and replace it by the tool."""
    die_with_parent()
    memory, *command = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_AS, (int(memory), int(memory)))
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
