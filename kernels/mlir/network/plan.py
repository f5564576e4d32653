"""What becomes of a module that is packed as a whole: its script, its layers, the moves left."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

from tilewise.kernels.mlir.frontend.nest import Dims, Operand


@dataclass(frozen=True)
class LayerShape:
    """The loops of a contraction over blocks, or of windows of single channels.

    Attributes:
        result: the loops of the result's axes, in order; the last is the columns of a block.
        row: the loop of which neighbours share a block of weights; None where there is none.
        line: another one, around it.
        block: the loop over the result's blocks of columns; None where there is one block.
        is_apart: whether neighbours along it have others between them, in memory.
        distance: bytes between neighbours along it, in the image.
        reductions: the loops that are summed over, in order; the last is the depth of a block.
        widens: whether what is multiplied is narrower than the sums.
        is_by_channel: whether each channel of the result is made of the same one of the image, as
            by a pool or a depthwise filter. Its neighbours in a block then make a vector.
        is_pool: whether nothing is multiplied.
    """

    extents: Dims
    result: Dims
    row: int | None
    line: int | None
    block: int | None
    is_apart: bool
    distance: int
    reductions: Dims
    widens: bool
    is_by_channel: bool = False
    is_pool: bool = False

    @classmethod
    def of(
        cls, extents: Dims, operands: tuple[Operand, Operand, Operand], *, widens: bool
    ) -> "LayerShape | None":
        """The shape of a contraction, by its image, weights and result; None without columns."""
        image, weights, made = operands
        result = tuple(axis[0][0] for axis in made.axes if len(axis) == 1)
        whole = len(result) == len(made.axes) and bool(result)
        if whole and result[-1] in image.dims:
            return cls._by_channel(extents, operands, result, widens=widens)
        if not whole or weights.axes[-1:] != made.axes[-1:]:
            return None
        reductions = tuple(sorted(image.dims & weights.dims - set(result)))
        if not reductions or len(image.dims | weights.dims) != len(extents):
            return None
        several = [dim for dim in result[:-1] if extents[dim] > 1]
        rows = [None, None, *(dim for dim in several if dim in image.dims - weights.dims)]
        blocks = [None, *(dim for dim in several if dim in weights.dims - image.dims)]
        line, row = rows[-2:]
        is_apart, distance = False, 0
        if row is not None:
            is_apart = any((row, 1) not in one.axes[-2] for one in (image, made))
            distance = _distance(image, row) * (2 if widens else 4)
        return cls(extents, result, row, line, blocks[-1], is_apart, distance, reductions, widens)

    @classmethod
    def _by_channel(
        cls,
        extents: Dims,
        operands: tuple[Operand, Operand, Operand],
        result: Dims,
        *,
        widens: bool,
    ) -> "LayerShape | None":
        """The shape of windows; None where neighbours in memory are no neighbouring channels."""
        image, weights, made = operands
        lanes = made.axes[-1]
        reductions = tuple(dim for dim in range(len(extents)) if dim not in result)
        if image.axes[-1] != lanes or not reductions:
            return None
        if result[-1] in weights.dims and weights.axes[-1] != lanes:
            return None
        rows = [dim for dim in result[:-1] if extents[dim] > 1]
        row = rows[-1] if rows else None
        distance = 0 if row is None else _distance(image, row) * (2 if widens else 4)
        is_pool = not weights.dims - set(reductions)
        return cls(
            extents, result, row, None, None, True, distance, reductions, widens, True, is_pool
        )

    @property
    def flops(self) -> int:
        """Floating-point operations of the layer: a product and a sum, or one of a pool."""
        return prod(self.extents) * (1 if self.is_pool else 2)

    def length(self, part: Literal["row", "line", "block"]) -> int:
        """Steps of one of the loops of which a tile has a part; 1 where there is none."""
        dim = {"row": self.row, "line": self.line, "block": self.block}[part]
        return 1 if dim is None else self.extents[dim]

    @property
    def columns(self) -> int:
        """Columns of a block."""
        return self.extents[self.result[-1]]


def _distance(operand: Operand, dim: int) -> int:
    """Elements between neighbours along a loop."""
    steps = 0
    for i, axis in enumerate(operand.axes):
        steps += sum(step for one, step in axis if one == dim) * prod(operand.shape[i + 1 :])
    return steps


@dataclass(frozen=True)
class Layer:
    """A layer that occurs in a packed network.

    Attributes:
        has_start: whether it makes itself what its sums start from.
        ends: ops on the contraction's result that it takes in.
    """

    payload: str
    shape: LayerShape
    has_start: bool
    ends: int
    where: tuple[str, ...]


@dataclass(frozen=True)
class Packed:
    """An op that the script packs."""

    number: int
    op: str
    where: str
    blocks: tuple[int, ...]


@dataclass(frozen=True)
class Left:
    """An op that stays as it is.

    Attributes:
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
