"""What becomes of a module that is packed as a whole: its script, and what is left to move."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tilewise.kernels.mlir.network.layer import Layer


@dataclass(frozen=True)
class Packed:
    """An op that the script packs.

    Attributes:
        number: among the module's ops that may be packed, from 1.
        op: its name.
        where: function, location and op.
        blocks: elements of a block along each of its loops, 0 for none.
    """

    number: int
    op: str
    where: str
    blocks: tuple[int, ...]


@dataclass(frozen=True)
class Left:
    """An op that stays as it is.

    Attributes:
        op: its name.
        where: function, location and op.
        reason: why.
        number: among the module's ops that may be packed, from 1; 0 where it may not.
    """

    op: str
    where: str
    reason: str
    number: int = 0


@dataclass(frozen=True)
class Remaining:
    """A pack or an unpack that the script leaves.

    Attributes:
        op: `pack` or `unpack`.
        types: from what to what.
        of_weights: whether it is done once, when the model is loaded.
        is_reshape: whether every element stays where it lies.
    """

    op: str
    types: str
    of_weights: bool
    is_reshape: bool


@dataclass(frozen=True)
class PackPlan:
    """A module packed as a whole.

    Attributes:
        script: the transform module, with what follows in its header.
        payload: the module's function on linalg by itself, its weights as arguments.
        depths: for each argument of the payload how many products are summed with it where it is a
            weight, else 0.
        packed: the ops that the script packs.
        left: the ops that it leaves.
        remaining: the packs and unpacks that are left once it was applied.
        apply_s: seconds to apply it.
        layers: what multiplies, each distinct one once, as it is computed on packed tensors.
        work: steps of the loops of the ops that may be packed, all together.
    """

    script: str
    payload: str
    depths: tuple[int, ...]
    packed: tuple[Packed, ...]
    left: tuple[Left, ...]
    remaining: tuple[Remaining, ...]
    apply_s: float
    layers: tuple[Layer, ...]
    work: int

    @property
    def counts(self) -> dict[str, int]:
        """Packs and unpacks of activations, those of them that move nothing, packs of weights."""
        return counts(self.remaining)

    def to_json(self) -> dict[str, Any]:
        """What can be told without the texts."""
        return {
            **self.counts,
            "apply_s": self.apply_s,
            "packed": [
                {"number": one.number, "op": one.op, "where": one.where, "blocks": list(one.blocks)}
                for one in self.packed
            ],
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
    """How many packs and unpacks are left, by what they are."""
    every = list(remaining)
    runs = [one for one in every if not one.of_weights]
    return {
        "packs": sum(one.op == "pack" for one in runs),
        "unpacks": sum(one.op == "unpack" for one in runs),
        "reshapes": sum(one.is_reshape for one in runs),
        "weights": len(every) - len(runs),
    }


def told(found: dict[str, int], left: Iterable[Left]) -> list[str]:
    """Lines on what is left, for the header of a script."""
    moves = found["packs"] + found["unpacks"] - found["reshapes"]
    lines = [
        f"left:     packs {found['packs']}, unpacks {found['unpacks']} of activations; "
        f"{moves} of them move data",
        f"weights:  packs {found['weights']}, once, when the model is loaded",
    ]
    return [*lines, *(f"plain:    {one.where}: {one.reason}" for one in left)]
