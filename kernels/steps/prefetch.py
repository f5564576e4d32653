"""`prefetch`: bring what is read next closer while the present block is computed on."""

from dataclasses import dataclass
from typing import ClassVar

from tilewise.kernels.nest import Fetch, Fetched, Loop, LoopKind, Nest, Stage
from tilewise.kernels.steps.base import OperandName, Step, register_step


@register_step
@dataclass(frozen=True)
class Prefetch(Step):
    """Fetch an operand ahead of its use. Halide prefetch, TVM software_pipeline.

    The native lowering alone: scripts say it in a comment.

        prefetch operand=B
    before                          after
        for n step 64:                  for n step 64:
            pack B to panels                pack B to panels
            tiles                           prefetch the next block of B
                                            tiles

    What is fetched follows from the nest: the next block of a B that loops cut, packed or in place;
    the panel behind, where panels are contiguous (packed before all runs, or transformed); rows
    further on in a sweep. A block of B is read along its rows, a cache line or a few at a time,
    where no hardware prefetcher follows; the micro-kernel has loads to spare.
    """

    name: ClassVar[str] = "prefetch"
    words: ClassVar[dict[str, tuple[str, ...]]] = {"operand": ("A", "B")}
    operand: OperandName

    def what(self, nest: Nest) -> Fetched:
        """Return what is fetched; ScheduleError where there is nothing that comes next."""
        if nest.group:
            raise self.refused(nest, "an earlier version prefetched images; search again")
        if self.operand != "B":
            raise self.refused(nest, "only B is prefetched")
        if nest.is_sweep:
            return Fetched.ROWS_AHEAD
        b, stage, is_split = nest.operand("B"), nest.stage("B"), nest.compute.lanes > 1
        if nest.algorithm:
            if nest.algorithm.name == "winograd" and not b.is_constant:
                why = "only a filter that was transformed ahead is prefetched; drop the step"
                raise self.refused(nest, why)
            return Fetched.NEXT_PANEL
        if stage and stage.is_ahead and not is_split:
            return Fetched.NEXT_PANEL
        by_rows = b.is_contiguous(nest.col) and not b.is_gathered and not b.is_constant
        if not by_rows or is_split:
            raise self.refused(nest, "B is not read row by row in a loop")
        if not {loop.dim for loop in _loops_around_block(nest)} & {nest.col, nest.k}:
            before = "the pack of B" if stage else "it"
            why = f"there is no next block; tile {nest.col} or stream {nest.k} before {before}"
            raise self.refused(nest, why)
        return Fetched.NEXT_BLOCK

    def check(self, nest: Nest) -> None:
        """Raise unless there is something that comes next, once."""
        if nest.fetches:
            raise self.refused(nest, "it is prefetched once")
        self.what(nest)

    def apply(self, nest: Nest) -> Nest:
        """Put the prefetch right before the macro-kernel."""
        return nest.inside(Fetch(self.operand, self.what(nest)))


def _loops_around_block(nest: Nest) -> list[Loop]:
    """Return the loops that cut B: those around its stage, or all so far where it is in place."""
    staged = [
        here.loops
        for here in nest.visit()
        if isinstance(here.node, Stage) and here.node.operand == "B"
    ]
    loops = staged[0] if staged else nest.loops
    return [loop for loop in loops if loop.kind in (LoopKind.TILE, LoopKind.K_BLOCK)]
