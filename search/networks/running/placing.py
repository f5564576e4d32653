"""Where buffers lie in one arena: two that live at the same time share no byte.

Offsets are found by first fit, the largest buffer first: each goes to the lowest place that no
buffer has that lives at some time when it does.
"""

from collections.abc import Sequence
from dataclasses import dataclass

LINE = 64  # bytes


@dataclass(frozen=True)
class Lifetime:
    """A buffer.

    Attributes:
        size: in bytes.
        first, last: the steps between which it holds something, both included.
    """

    size: int
    first: int
    last: int

    def meets(self, other: "Lifetime") -> bool:
        """Whether both live at some time."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class Placed:
    """Buffers in an arena.

    Attributes:
        lifetimes: of the buffers.
        offsets: of each, in bytes, a multiple of a cache line.
        size: of the arena, in bytes.
    """

    lifetimes: tuple[Lifetime, ...]
    offsets: tuple[int, ...]
    size: int

    @property
    def apart(self) -> int:
        """Bytes that the buffers would take if none shared memory with another."""
        return sum(_rounded(one.size) for one in self.lifetimes)


def placed(lifetimes: Sequence[Lifetime]) -> Placed:
    """An arena for buffers."""
    offsets = [0] * len(lifetimes)
    done: list[int] = []
    for number in sorted(range(len(lifetimes)), key=lambda i: -lifetimes[i].size):
        one = lifetimes[number]
        others = sorted((offsets[i], i) for i in done if lifetimes[i].meets(one))
        at = 0
        for begin, i in others:
            if at + _rounded(one.size) <= begin:
                break
            at = max(at, begin + _rounded(lifetimes[i].size))
        offsets[number] = at
        done.append(number)
    ends = [at + _rounded(one.size) for at, one in zip(offsets, lifetimes, strict=True)]
    return Placed(tuple(lifetimes), tuple(offsets), max(ends, default=0))


def _rounded(size: int) -> int:
    return -(-size // LINE) * LINE
