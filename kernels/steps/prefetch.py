"""`prefetch`: bring what is read next closer while the present block is computed on."""

from collections.abc import Iterable
from typing import Any, ClassVar

from tilewise.kernels.nest import Fetch, Fetched, Loop, LoopKind, Nest
from tilewise.kernels.steps.base import OperandName, Part, Step, register_step
from tilewise.kernels.steps.pack import Pack
from tilewise.kernels.steps.stream import Stream
from tilewise.kernels.steps.tile import Tile

PANEL_DISTANCE = 16384
"""On Zen 5, m=16, n=11008, k=4096 in bf16 takes 9.5 ms without, 4.0 with 4 KiB, 3.3 with 8, 3.2
with 12 to 64. Its multiply-adds take 2.6.
"""

ROW_DISTANCE = 256
"""On Zen 5 rows of the last cache are read fastest with it, those of memory without any."""


@register_step
class Prefetch(Step):
    """Fetch an operand ahead of its use. Halide prefetch, TVM software_pipeline.

    The native lowering alone: scripts say it in a comment.

        prefetch operand=B
    before                          after
        for n step 64:                  for n step 64:
            pack B to panels                pack B to panels
            tiles                           prefetch the next block of B
                                            tiles

    What is fetched, how far ahead and to which cache follows from the nest:

        B                               fetched                     ahead       to
        is cut by loops                 the next block, packed      a block     L2
                                        or in place
        has contiguous panels: packed   the panel behind            16 KiB      L2
        before all runs, transformed
        of one tile of rows (skinny)     rows further on             256 bytes   L1
        of several (skinny)              the same                    256 bytes   L2

    A block of B is read along its rows, a cache line or a few at a time, where no hardware
    prefetcher follows; the micro-kernel has loads to spare. Calls that share a panel fetch a part
    of the next one each; a call that reads it alone fetches the given distance ahead.
    """

    name: ClassVar[str] = "prefetch"
    words: ClassVar[dict[str, tuple[str, ...]]] = {"operand": ("A", "B")}
    choices: ClassVar[tuple[str, ...]] = ("prefetch",)
    operand: OperandName

    @classmethod
    def chosen(cls, choice: str, value: Any, part: Part) -> Iterable[Step]:
        """Return the step, where there is a next block or panel of B."""
        if not value:
            return []
        nest, b = part.nest, part.nest.operand("B")
        has_panels = b.is_constant and any(step == Pack("B") for step in part.steps)
        moves = any(
            isinstance(step, Tile | Stream) and step.dim in (nest.col, nest.k)
            for step in part.steps
        )
        return [cls("B")] if nest.algorithm or has_panels or moves else []

    def fetch(self, nest: Nest) -> Fetch:
        """Return the prefetch; ScheduleError where there is nothing that comes next."""
        if nest.group:
            raise self.refused(nest, "an earlier version prefetched images; search again")
        if self.operand != "B":
            raise self.refused(nest, "only B is prefetched")
        if nest.is_skinny:
            shares_b = nest.tile.rows < nest.extent(nest.row)
            return Fetch("B", Fetched.ROWS_AHEAD, ROW_DISTANCE, 2 if shares_b else 1)
        b, stage, is_split = nest.operand("B"), nest.stage("B"), nest.compute.lanes > 1
        panel = Fetch("B", Fetched.NEXT_PANEL, PANEL_DISTANCE, level=2)
        if nest.algorithm:
            if nest.algorithm.tiles_pixels and not b.is_constant:
                why = "only a filter that was transformed ahead is prefetched; drop the step"
                raise self.refused(nest, why)
            return panel
        if stage and stage.is_ahead and not is_split:
            return panel
        by_rows = b.is_contiguous(nest.col) and not b.is_gathered and not b.is_constant
        if not by_rows or is_split:
            raise self.refused(nest, "B is not read row by row in a loop")
        if not {loop.dim for loop in _loops_around_block(nest)} & {nest.col, nest.k}:
            before = "the pack of B" if stage else "it"
            why = f"there is no next block; tile {nest.col} or stream {nest.k} before {before}"
            raise self.refused(nest, why)
        return Fetch("B", Fetched.NEXT_BLOCK, 0, level=2)

    def check(self, nest: Nest) -> None:
        """Raise unless there is something that comes next, once."""
        if nest.fetches:
            raise self.refused(nest, "it is prefetched once")
        self.fetch(nest)

    def apply(self, nest: Nest) -> Nest:
        """Put the prefetch right before the macro-kernel."""
        return nest.inside(self.fetch(nest))


def _loops_around_block(nest: Nest) -> list[Loop]:
    """Return the loops that cut B: those around its stage, or all so far where it is in place."""
    staged = (here.loops for here in nest.visit() if here.node == nest.stage("B"))
    loops = next(staged, nest.loops)
    return [loop for loop in loops if loop.kind in (LoopKind.TILE, LoopKind.K_BLOCK)]
