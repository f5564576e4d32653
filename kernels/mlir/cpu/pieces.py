"""Cutting a contraction so that every block has a static size.

Vectorisation needs static shapes, and blocks that do not divide an extent would leave
`min(size, rest)`. So an op is split where the last whole block ends, and once more where
the last whole register tile ends. Ops that are treated alike from there on (whole blocks
and the shorter block of whole tiles) share one handle; a sliver narrower than the
register tile becomes a piece of its own.
"""

from dataclasses import dataclass, replace

from tilewise.kernels.errors import LoweringError

Extents = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Piece:
    """One handle of the script and what is known about the ops behind it.

    Attributes:
        handle: the SSA name, with its `%`.
        extents: for each dim the extents that its ops can have; more than one where
            whole blocks and a shorter one share the handle.
        merged: whether the handle stands for several ops.
        lanes: panel width of packed B; None while B is read in place.
        moves_image: whether a loop around it moves A, for a convolution the image.
    """

    handle: str
    extents: Extents
    lanes: int | None = None
    merged: bool = False
    moves_image: bool = False

    def with_extent(self, handle: str, dim: str, extents: tuple[int, ...]) -> "Piece":
        """The same piece behind `handle` with new extents of `dim`."""
        merged = self.merged or len(extents) > 1
        return replace(self, handle=handle, extents={**self.extents, dim: extents}, merged=merged)


@dataclass(frozen=True)
class Cut:
    """Where to split one extent: whole blocks, then whole units, then the sliver."""

    blocks: int
    units: int
    sliver: int

    @property
    def main(self) -> tuple[int, ...]:
        """The parts that consist of whole units."""
        return tuple(part for part in (self.blocks, self.units) if part)

    @property
    def parts(self) -> tuple[int, ...]:
        """All parts, in order."""
        return (*self.main, self.sliver) if self.sliver else self.main


def cut(extent: int, size: int, unit: int) -> Cut:
    """Cut `extent` for blocks of `size` made of register tiles of `unit`."""
    blocks = extent - extent % size
    units = (extent - blocks) // unit * unit
    return Cut(blocks, units, extent - blocks - units)


def check_uniform(dim: str, extents: tuple[int, ...], size: int, unit: int) -> None:
    """Raise unless every one of several extents can be tiled without another split.

    Raises:
        LoweringError: a block that is already a remainder would need splitting again.
    """
    for extent in extents:
        if extent % unit or (extent > size and extent % size):
            raise LoweringError(
                f"dim {dim}: blocks of {' and '.join(map(str, extents))} share one loop nest, "
                f"and {size} does not divide {extent}; use one tile step for {dim}, or sizes "
                f"that divide each other"
            )
