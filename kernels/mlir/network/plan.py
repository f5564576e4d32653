"""A module packed as a whole: its script, and the remaining moves."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PackedLayout:
    """An op that the script packs."""

    number: int
    op: str
    where: str
    blocks: tuple[int, ...]


@dataclass(frozen=True)
class Left:
    """An op that stays plain; `number` among packable ops is 0 if it is not packable."""

    op: str
    where: str
    reason: str
    number: int = 0


@dataclass(frozen=True)
class Remaining:
    """A pack or unpack that remains after the script.

    `of_weights` means once per load of the model, `is_reshape` that no element moves.
    """

    op: str
    types: str
    of_weights: bool
    is_reshape: bool


@dataclass(frozen=True)
class PackPlan:
    """A module packed as a whole.

    Attributes:
        script: the transform module, with the results in its header.
        payload: the module's function on linalg, its weights as arguments.
        depths: products per sum for each argument that is a weight, else 0.
        apply_s: seconds to apply the script.
        work: steps of the loops of all packable ops.
    """

    script: str
    payload: str
    depths: tuple[int, ...]
    packed: tuple[PackedLayout, ...]
    left: tuple[Left, ...]
    remaining: tuple[Remaining, ...]
    apply_s: float
    work: int

    @property
    def counts(self) -> dict[str, int]:
        """Packs and unpacks of activations, those that move nothing, packs of weights."""
        return counts(self.remaining)

    def to_json(self) -> dict[str, Any]:
        """Return everything but the texts."""
        return {
            **self.counts,
            "apply_s": self.apply_s,
            "packed": [{**vars(one), "blocks": list(one.blocks)} for one in self.packed],
            "left": [
                {"number": one.number or None, "op": one.op, "where": one.where,
                 "reason": one.reason}
                for one in self.left
            ],
            "moves": [
                {"op": one.op, "types": one.types}
                for one in self.remaining
                if not (one.of_weights or one.is_reshape)
            ],
        }  # fmt: skip


def counts(remaining: Iterable[Remaining]) -> dict[str, int]:
    """Return the number of remaining packs and unpacks by kind."""
    every = list(remaining)
    runs = [one for one in every if not one.of_weights]
    return {
        "packs": sum(one.op == "pack" for one in runs),
        "unpacks": sum(one.op == "unpack" for one in runs),
        "reshapes": sum(one.is_reshape for one in runs),
        "weights": len(every) - len(runs),
    }


def header_lines(found: dict[str, int], left: Iterable[Left]) -> list[str]:
    """Return the lines of a script's header on what remains."""
    moves = found["packs"] + found["unpacks"] - found["reshapes"]
    lines = [
        f"left:     packs {found['packs']}, unpacks {found['unpacks']} of activations; "
        f"{moves} of them move data",
        f"weights:  packs {found['weights']}, once, when the model is loaded",
    ]
    return [*lines, *(f"plain:    {one.where}: {one.reason}" for one in left)]
