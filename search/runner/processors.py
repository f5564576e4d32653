"""Which processor times, and which compile beside it.

One thread is timed on a processor of its own, claimed among all processes of this project
on the machine; what compiles meanwhile stays off it and off its core's other processor.
"""

import socket
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tilewise.kernels.native.threads.pinning import core_of, pin, usable_processors
from tilewise.kernels.target import parse_target

SLOW = 1.08  # times the fastest pace that was seen: somebody else is on the core
BRIEF_S, ENOUGH_SLOW = 0.1, 3  # for which that is borne, and trials that have to show it
RECENT, BOGUS = 512, 3  # paces, of which the third fastest is what others are compared with
STALE_S = 1.0  # after which the pace of another processor is not known any more
CLAIM = "\0tilewise/processor/{}"


@dataclass
class Claim:
    """Processors for one runner; `release` gives them back, as the end of the process does.

    Attributes:
        timing: where candidates are timed; None leaves it to the system.
        others: where compiling does not disturb that; empty where there is no such place.
    """

    timing: set[int] | None
    others: set[int]
    _holder: socket.socket | None = field(default=None, repr=False)

    def release(self) -> None:
        """Let another runner claim the processor."""
        if self._holder is not None:
            self._holder.close()
            self._holder = None

    def change(self, left: Mapping[int, Any] | None = None) -> bool:
        """Time elsewhere, where this processor turned out to be busy; whether there is a place.

        Processors that have not been `left` come first, then those left the longest ago.
        """
        if self._holder is None or not self.others:
            return False
        for processor in sorted(self.others, key=lambda p: (left or {}).get(p, (0.0,))):
            holder = _hold(processor)
            if holder is not None:
                self.release()
                self.timing, self._holder = {processor}, holder
                self.others = _beside(processor, usable_processors())
                return True
        return False


@dataclass
class Paces:
    """How fast each processor was when something was last timed on it.

    Attributes:
        recent: the last paces, wherever they were.
        left: when each processor was left, in seconds, and at which pace.
    """

    recent: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))
    left: dict[int, tuple[float, float]] = field(default_factory=dict)
    _slow: list[float] = field(default_factory=list)  # moments

    def is_to_leave(self, processor: int, pace: float, now: float) -> bool:
        """Note a pace; whether the timing should go on elsewhere, for a while at least."""
        self.recent.append(pace)
        usual = sorted(self.recent)[min(len(self.recent), BOGUS) - 1]
        if pace < SLOW * usual:
            self._slow.clear()
            return False
        self._slow.append(now)
        if len(self._slow) < ENOUGH_SLOW or now - self._slow[0] < BRIEF_S:
            return False
        others = [
            p for at, (when, p) in self.left.items() if at != processor and now - when < STALE_S
        ]
        if others and min(others) > pace / SLOW:
            return False
        self.left[processor] = now, pace
        self._slow.clear()
        return True


def claim(target: str) -> Claim:
    """Processors for a runner on a target, by its canonical string.

    Several threads are pinned by their own crew to the first processors, so the rest is
    for compiling.
    """
    threads = parse_target(target).threads
    usable = usable_processors()
    if threads > 1:
        return Claim(None, set(usable[threads:]))
    for processor in usable:
        holder = _hold(processor)
        if holder is not None:
            return Claim({processor}, _beside(processor, usable), holder)
    return Claim(None, set())


@contextmanager
def timing_alone(target: str) -> Iterator[None]:
    """This thread on a claimed processor, as searches time; where none is free, where it is.

    Args:
        target: canonical; with several threads their crew pins them, and nothing is claimed.
    """
    held = claim(target)
    before = pin(held.timing) if held.timing else None
    try:
        yield
    finally:
        if before is not None:
            pin(before)
        held.release()


def _beside(timing: int, usable: list[int]) -> set[int]:
    """Processors of other cores on which no other search is timing now."""
    core = core_of(timing)
    return {p for p in usable if core_of(p) != core and _is_free(p)}


def _is_free(processor: int) -> bool:
    holder = _hold(processor)
    if holder is not None:
        holder.close()
    return holder is not None


def _hold(processor: int) -> socket.socket | None:
    """A claim that ends with this process, however that ends; None when another has it.

    Names in Linux' abstract namespace need no file and no permission. Elsewhere nothing
    can be pinned, so nothing is claimed.
    """
    if sys.platform != "linux":
        return None
    holder = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        holder.bind(CLAIM.format(processor))
    except OSError:
        holder.close()
        return None
    return holder
