"""The phases of a search."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

PhaseName = Literal["search", "proof", "finals", "samples", "variants"]
PHASES: tuple[PhaseName, ...] = get_args(PhaseName)


@dataclass(frozen=True)
class SearchPhase:
    """A phase of a search and its progress; `total` is 0 if unknown.

    `search` counts trials, `proof` scripts, `finals` processes that time the finalists.
    Of a range, `samples` counts searches of single sizes, `variants` sizes at which all finalists
    are timed.
    """

    name: PhaseName
    done: int
    total: int


OnPhase = Callable[[SearchPhase], None]


def ignore_phase(_phase: SearchPhase) -> None:
    """Ignore phases."""
