"""Choose the processors that time and those that compile.

Timing claims a processor for each thread among all Tilewise processes of the machine; compilers
avoid these processors and their cores.
"""

import socket
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from tilewise.kernels.native.threads.pinning import core_of, pin, usable_processors
from tilewise.kernels.target import parse_target

SLOW = 1.08  # times the fastest speed_factor that was seen: somebody else is on the core
BRIEF_S, ENOUGH_SLOW = 0.1, 3  # for which that is borne, and trials that have to show it
RECENT, BOGUS = 512, 3  # speed_factors, of which the third fastest is what others are compared with
STALE_S = 1.0  # after which the speed_factor of another processor is not known any more
CLAIM = "\0tilewise/processor/{}"


@dataclass
class Claim:
    """Processors of one runner until `release` or the end of the process.

    `timing` is None if the system chooses; `others` are those of other cores on which no search
    times, where compiling does not disturb it.
    """

    timing: set[int] | None
    others: set[int]
    _holders: list[socket.socket] = field(default_factory=list, repr=False)

    def release(self) -> None:
        """Release the processors."""
        for holder in self._holders:
            holder.close()
        self._holders = []

    def change(self, left: Mapping[int, tuple[float, float]]) -> bool:
        """Move the timing to other free processors; return whether there are enough.

        Processors that were not `left` come first, then those left longest ago.
        """
        others = [p for p in usable_processors() if p in self.others]
        others.sort(key=lambda p: left.get(p, (0.0, 0.0)))
        return bool(self._holders) and self.take(others, len(self._holders))

    def take(self, processors: Iterable[int], threads: int) -> bool:
        """Move the timing to the first free ones, one per thread, if they are on enough cores."""
        held: dict[int, socket.socket] = {}
        for processor in processors:
            holder = _hold(processor) if len(held) < threads else None
            if holder is not None:
                held[processor] = holder
        cores, left = (set(map(core_of, some)) for some in (held, self.timing or ()))
        if len(held) < threads or len(cores) < len(left):
            for holder in held.values():
                holder.close()
            return False
        self.release()
        self.timing, self._holders = set(held), [*held.values()]
        busy = _busy_cores()
        self.others = {p for p in usable_processors() if core_of(p) not in busy}
        return True


@dataclass
class SpeedFactors:
    """The latest speed factor of each processor.

    `left` maps processors to when they were left and at which factor.
    """

    recent: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))
    left: dict[int, tuple[float, float]] = field(default_factory=dict)
    _slow: list[float] = field(default_factory=list)  # moments

    def is_to_leave(self, processor: int, speed_factor: float, now: float) -> bool:
        """Record a factor; return whether timing should move to another processor."""
        self.recent.append(speed_factor)
        usual = sorted(self.recent)[min(len(self.recent), BOGUS) - 1]
        if speed_factor < SLOW * usual:
            self._slow.clear()
            return False
        self._slow.append(now)
        if len(self._slow) < ENOUGH_SLOW or now - self._slow[0] < BRIEF_S:
            return False
        others = [
            p for at, (when, p) in self.left.items() if at != processor and now - when < STALE_S
        ]
        if others and min(others) > speed_factor / SLOW:
            return False
        self.left[processor] = now, speed_factor
        self._slow.clear()
        return True


def claim(target: str) -> Claim:
    """Claim processors for a runner on a canonical target, none if too few are free."""
    claimed, busy = Claim(None, set()), _busy_cores()
    best_first = sorted(usable_processors(), key=lambda processor: core_of(processor) in busy)
    claimed.take(best_first, parse_target(target).threads)
    return claimed


@contextmanager
def timing_alone(target: str) -> Iterator[None]:
    """Pin this thread to claimed processors, as searches do, if enough are free."""
    held = claim(target)
    before = pin(held.timing) if held.timing else None
    try:
        yield
    finally:
        if before is not None:
            pin(before)
        held.release()


def _busy_cores() -> set[str]:
    """Return the cores of which a processor is claimed."""
    found = set()
    for processor in usable_processors():
        holder = _hold(processor)
        if holder is None:
            found.add(core_of(processor))
        else:
            holder.close()
    return found


def _hold(processor: int) -> socket.socket | None:
    """Claim a processor until this process ends; None if it is claimed.

    Names in Linux's abstract namespace need no file or permission. Elsewhere nothing can be pinned.
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
