"""A chain: functions at addresses, called one after another with the addresses of parameters.

Each thread has a chain of its own, of as many calls. Where threads have to wait for each other,
there is a barrier in all of them.
"""

import ctypes
import functools
from typing import Any

from numba import cfunc

from tilewise.kernels.native.language.barrier import wait_for_all
from tilewise.kernels.native.language.words import call_address, word

Chain = ctypes.CFUNCTYPE(None, ctypes.c_int64)


@functools.cache
def chain() -> Any:
    """The function that runs a chain.

    Parameters: the address of pairs of a function and its parameters, first, end.
    """

    @cfunc("void(int64)")
    def run(at: int) -> None:
        pairs = word(at, 0)
        for i in range(word(at, 1), word(at, 2)):
            call_address(word(pairs, 2 * i), word(pairs, 2 * i + 1))

    return run


def barrier_pass() -> Any:
    """Wait for all threads: the barrier's address, and how many they are."""

    @cfunc("void(int64)")
    def run(at: int) -> None:
        wait_for_all(word(at, 0), word(at, 1))

    return run


def nothing_pass() -> Any:
    """What a thread calls that has no part in a step."""

    @cfunc("void(int64)")
    def run(at: int) -> None:
        return

    return run
