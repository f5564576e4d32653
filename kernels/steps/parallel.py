"""`parallel`: divide a dim of the result among threads."""

from collections.abc import Iterable
from typing import Any, ClassVar

from tilewise.kernels.block_sizes import part_size
from tilewise.kernels.nest import Loop, LoopKind, Nest, Stage
from tilewise.kernels.steps.base import Part, Step, register_step
from tilewise.kernels.steps.tile import check_dim_of_result


@register_step
class Parallel(Step):
    """Divide a dim of the result among threads, in equal parts of whole register tiles.

    Halide parallel, TVM parallel, transform structured.tile_using_forall.

        parallel dim=n parts=2
    before                          after
        for n step 64: tiles            forall n step 512:  # 2 trips
                                            for n step 64: tiles

    Each thread runs the rest of the nest on its own part, with its own stages; two such steps
    divide a plane. No thread waits for another before the end.
    """

    name: ClassVar[str] = "parallel"
    choices: ClassVar[tuple[str, ...]] = ("parallel",)
    dim: str
    parts: int

    @classmethod
    def chosen(cls, choice: str, value: Any, part: Part) -> Iterable[Step]:
        """Yield the steps of a division such as `n=2` or `m=2,n=4`, and cut the part.

        A dim is divided in no more parts than it has register tiles. What divides images, lines or
        pixels of the direct method divides the tiles of an algorithm.
        """
        nest = part.nest
        wanted = dict.fromkeys((nest.row, nest.col), 1) if nest.algorithm else {}
        for text in value.split(","):
            dim, _, parts = text.partition("=")
            if parts:
                dim = dim if dim in nest.extents else nest.row
                wanted[dim] = wanted.get(dim, 1) * int(parts)
        for dim, most in wanted.items():
            extent, unit = part.extents[dim], nest.unit(dim)
            parts_of_dim = min(most, -(-extent // unit))
            if parts_of_dim > 1:
                part.extents[dim] = part_size(extent, parts_of_dim, unit)
                yield cls(dim, parts_of_dim)

    def check(self, nest: Nest) -> None:
        """Raise unless it is the first loop over its dim, which has as many register tiles.

        Parts are equal: 5 tiles in 4 parts are 2, 2 and 1, and one thread has none.
        """
        outer = nest.loops_of(LoopKind.TILE, LoopKind.K_BLOCK)
        if outer or any(nest.nodes(Stage)) or nest.fetches:
            raise self.refused(nest, "parallel steps come before all others")
        check_dim_of_result(self, nest, self.dim)
        if any(loop.dim == self.dim for loop in nest.loops_of(LoopKind.PARALLEL)):
            raise self.refused(nest, f"{self.dim} is divided once")
        tiles = -(-nest.extent(self.dim) // nest.unit(self.dim))
        if not 2 <= self.parts <= tiles:
            raise self.refused(nest, f"{self.dim} has {tiles} register tiles; give 2 to {tiles}")

    def apply(self, nest: Nest) -> Nest:
        """Put a parallel loop around the macro-kernel."""
        size = part_size(nest.extent(self.dim), self.parts, nest.unit(self.dim))
        return nest.around(Loop(self.dim, size, LoopKind.PARALLEL))
