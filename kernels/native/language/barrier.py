"""Waiting without the operating system: words that threads share, and a barrier of them.

A sense-reversing barrier (Mellor-Crummey and Scott, Algorithms for Scalable
Synchronization on Shared-Memory Multiprocessors, ACM TOCS 9(1), 1991): the last to
arrive turns the phase, which all others watch.
"""

from typing import Any

from numba import njit, types
from numba.extending import intrinsic

from tilewise.kernels.native.language.primitives import (
    emit_add_shared,
    emit_offer_core,
    emit_pause,
    emit_read_shared,
    emit_write_shared,
)

LINE_WORDS = 8
ARRIVED, PHASE = 0, LINE_WORDS  # each on a cache line of its own
BARRIER_WORDS = 2 * LINE_WORDS
SPINS = 1 << 12  # then the core is offered to whoever keeps a thread from arriving


@intrinsic
def read_shared(_typing: Any, address: Any, index: Any) -> Any:
    """The i64 at position `index` of those at `address`, and all that was written before it."""

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return emit_read_shared(builder, *args)

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def write_shared(_typing: Any, address: Any, index: Any, value: Any) -> Any:
    """Write an i64 for others to read, after all that was written before it."""

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        emit_write_shared(builder, *args)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@intrinsic
def add_shared(_typing: Any, address: Any, index: Any, value: Any) -> Any:
    """Add to an i64 that others add to; what it was before."""

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return emit_add_shared(builder, *args)

    return types.int64(types.int64, types.int64, types.int64), codegen


@intrinsic
def pause(_typing: Any) -> Any:
    """Tell the core that it waits in a loop; nothing where there is no such instruction."""

    def codegen(context: Any, builder: Any, _signature: Any, _args: Any) -> Any:
        emit_pause(builder)
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def offer_core(_typing: Any) -> Any:
    """Let another thread run here, if one waits."""

    def codegen(context: Any, builder: Any, _signature: Any, _args: Any) -> Any:
        emit_offer_core(builder)
        return context.get_dummy_value()

    return types.void(), codegen


@njit(nogil=True)
def wait_for_all(barrier: int, parts: int) -> None:
    """Return once `parts` threads have called this with the same barrier."""
    phase = read_shared(barrier, PHASE)
    if add_shared(barrier, ARRIVED, 1) + 1 == parts:
        write_shared(barrier, ARRIVED, 0)
        write_shared(barrier, PHASE, phase + 1)
        return
    spins = 0
    while read_shared(barrier, PHASE) == phase:
        pause()
        spins += 1
        if spins > SPINS:
            offer_core()
