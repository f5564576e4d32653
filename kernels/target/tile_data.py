"""Permission to use the tile registers of AMX, which Linux gives a process that asks for it.

Threads of the process have it too, and so do children that it forks; a program that it starts has
to ask again. Linux refuses where a thread has an alternate signal stack that is too small for the
registers.
"""

import ctypes
import functools
import platform
import sys

SYS_ARCH_PRCTL = 158
ARCH_REQ_XCOMP_PERM = 0x1023
XFEATURE_XTILEDATA = 18


@functools.cache
def may_use_tiles() -> bool:
    """Ask for tile registers, once in each process; return whether they may be used."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    call = ctypes.CDLL(None, use_errno=True).syscall
    return int(call(SYS_ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)) == 0
