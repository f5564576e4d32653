"""A module packed as a whole: its script, its layers, and the remaining moves."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

from tilewise.kernels.mlir.frontend.nest import Dims, NestOperand


@dataclass(frozen=True)
class LayerShape:
    """The loops of a contraction over blocks, or of windows of single channels.

    Attributes:
        result: the loops of the result's axes, in order; the last is the columns of a block.
        row: the loop whose neighbours share a block of weights; None if there is none.
        line: the loop around it.
        block: the loop over the result's blocks of columns; None for one block.
        is_apart: whether neighbours along `row` are not contiguous in memory.
        distance: bytes between neighbours along `row` in the image.
        reductions: the loops summed over, in order; the last is the depth of a block.
        widens: whether factors are narrower than the sums.
        is_by_channel: whether each channel of the result depends on that of the image alone, as in
            a pool or a depthwise filter; a vector then holds channels.
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
        cls, extents: Dims, operands: tuple[NestOperand, NestOperand, NestOperand], *, widens: bool
    ) -> "LayerShape | None":
        """Return the shape for image, weights and result; None without columns."""
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
        operands: tuple[NestOperand, NestOperand, NestOperand],
        result: Dims,
        *,
        widens: bool,
    ) -> "LayerShape | None":
        """Return the shape of windows; None if channels are not contiguous in memory."""
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
        """The floating-point operations: a product and a sum, or one operation of a pool."""
        return prod(self.extents) * (1 if self.is_pool else 2)

    def length(self, part: Literal["row", "line", "block"]) -> int:
        """Return the steps of a loop that a tile splits; 1 if there is none."""
        dim = {"row": self.row, "line": self.line, "block": self.block}[part]
        return 1 if dim is None else self.extents[dim]

    @property
    def columns(self) -> int:
        """The columns of a block."""
        return self.extents[self.result[-1]]


def _distance(operand: NestOperand, dim: int) -> int:
    """Return the elements between neighbours along a loop."""
    steps = 0
    for i, axis in enumerate(operand.axes):
        steps += sum(step for one, step in axis if one == dim) * prod(operand.shape[i + 1 :])
    return steps


@dataclass(frozen=True)
class Layer:
    """A layer of a packed network, which includes `ends` ops on the contraction's result.

    `has_start` means that it also makes the start of its sums.
    """

    payload: str
    shape: LayerShape
    has_start: bool
    ends: int
    where: tuple[str, ...]


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
        layers: the distinct ops that multiply, on packed tensors.
        work: steps of the loops of all packable ops.
    """

    script: str
    payload: str
    depths: tuple[int, ...]
    packed: tuple[PackedLayout, ...]
    left: tuple[Left, ...]
    remaining: tuple[Remaining, ...]
    apply_s: float
    layers: tuple[Layer, ...]
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
