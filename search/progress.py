"""How far a search has come, in words that a person who waits for it understands."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

PhaseName = Literal["search", "proof", "finals"]
PHASES: tuple[PhaseName, ...] = get_args(PhaseName)


@dataclass(frozen=True)
class Phase:
    """What a search is doing, and how much of it is done.

    Attributes:
        name: `search` counts trials, `proof` scripts, `finals` processes that time the finalists.
        done: of `total`.
        total: how many there will be at most; 0 where nobody can say.
    """

    name: PhaseName
    done: int
    total: int


OnPhase = Callable[[Phase], None]
