"""How a loop nest uses its micro-kernels: for which cut tiles, and which of them seldom."""

from dataclasses import dataclass
from math import prod
from typing import Literal

from tilewise.kernels.nest import Compute, Nest, Role, Stage
from tilewise.kernels.nest.counts import Lengths, blocks_at, visits

Cut = Literal["", "rows", "cols", "rows and cols"]
"""The sides on which C cuts tiles off."""

SELDOM = 0.1
"""Of the time of all calls. Loops over single steps took up to 7% longer (f32, f64; 12 cases)."""


@dataclass(frozen=True)
class Use:
    """What is asked of the micro-kernels beside the one for whole tiles.

    Attributes:
        cut: the sides on which tiles may be cut off.
        seldom: names of those that few calls go to. Their loops are not unrolled: that would gain
            nothing, take twice as long to compile, and be done again for each factor.
    """

    cut: Cut = "rows and cols"
    seldom: frozenset[str] = frozenset()


ANYHOW = Use()


def use_of(nest: Nest, lanes: int) -> Use:
    """What `nest` asks for with vectors of `lanes` elements.

    The names are those of the micro-kernels for tiles at an `edge`, and those `filling` a panel.
    Of several threads one may have nothing but such tiles, and the others wait for it.
    """
    rows = cols = filling = 0.0
    for node, blocks in blocks_at(nest):
        if isinstance(node, Stage) and node.operand == "B":
            filling = float(_panels(nest, blocks))
        elif isinstance(node, Compute):
            filling /= visits(nest, blocks)
            rows = _cut_share(blocks[nest.row], nest.tile.rows)
            cols = _cut_share(blocks[nest.col], nest.tile.cols, lanes)
    shares = {"edge": rows + cols - rows * cols, "filling": filling}
    is_alone = len(nest.parts) == 1
    seldom = frozenset(name for name, share in shares.items() if is_alone and share <= SELDOM)
    return Use(_cut(rows > 0, cols > 0), seldom)


def _cut(rows: bool, cols: bool) -> Cut:
    return "rows and cols" if rows and cols else "rows" if rows else "cols" if cols else ""


def _cut_share(tiles: Lengths, whole: int, vector: int = 0) -> float:
    """Of the time of the tiles of a dim, by their lengths, what those that are cut off take.

    A cut tile takes as long as a whole one, but for one that is left with a single vector.
    """
    cut = sum(
        times * (vector / whole if length <= vector < whole else 1)
        for length, times in tiles.items()
        if length != whole
    )
    return cut / (cut + tiles[whole])


def _panels(nest: Nest, blocks: dict[str, Lengths]) -> int:
    """How many panels of B are packed."""
    cols = nest.tile.cols
    return prod(
        sum(-(-length // cols) * times for length, times in lengths.items())
        if dim == nest.col
        else lengths.total()
        for dim, lengths in blocks.items()
        if nest.dim(dim).role is not Role.TAP
    )
