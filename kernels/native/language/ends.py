"""Which end of an operand is nearer in the caches: functions of the language of drivers."""

from numba import njit

from tilewise.kernels.native.language.words import clock, touch


@njit
def comes_sooner(there: int, here: int, apart: int, lines: int) -> int:
    """Whether as many `lines`, `apart` bytes from each other, come sooner from `there` than `here`.

    Each load waits for the one before: what differs is how far the lines are, not how many of them
    a core can wait for at once.
    """
    began = clock()
    for line in range(lines):
        touch(there + line * apart)
    between = clock()
    for line in range(lines):
        touch(here + line * apart)
    return 1 if between - began < clock() - between else 0
