"""`register`: the tile of C that stays in registers."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar, Literal

from tilewise.kernels.nest import Loop, LoopKind, MicroTile, Nest, Node
from tilewise.kernels.steps.base import Part, Place, Step, register_step


@register_step
class Register(Step):
    """Hold a tile of `rows` x `cols` of C in registers over the whole k-block.

    Halide unroll and vectorize of the inner tile, TVM tensorize, vectorisation of the tiled linalg
    op and hoisting of its accumulator.

        register rows=6 cols=64 outer=cols
    before                          after
        C += A * B                      for n step 64:
        store C                             for m step 6:
                                                C += A * B  # 6x64
                                                store C

    `outer` says which of the two loops is outermost. With an algorithm of fewer products the loop
    over points is between them.
    """

    name: ClassVar[str] = "register"
    place: ClassVar[Place] = Place.REGISTER
    words: ClassVar[dict[str, tuple[str, ...]]] = {"outer": ("rows", "cols")}
    choices: ClassVar[tuple[str, ...]] = ("register",)
    rows: int
    cols: int
    outer: Literal["rows", "cols"] = "cols"

    @classmethod
    def chosen(cls, choice: str, value: Any, part: Part) -> Iterable[Step]:
        """Return the step of rows, columns and the outermost loop."""
        return [cls(*value)]

    def check(self, nest: Nest) -> None:
        """Raise unless, of a grouped convolution, rows exist and columns are whole groups."""
        if nest.algorithm and self.outer != "cols":
            raise self.refused(nest, f"with {nest.algorithm.name} give outer=cols")
        if not nest.group:
            return
        if self.rows > nest.extent(nest.row):
            raise self.refused(nest, f"{nest.row} is only {nest.extent(nest.row)}")
        if nest.col == "co" and self.cols % nest.group:
            raise self.refused(nest, f"cols is no multiple of a group's {nest.group} channels")

    def apply(self, nest: Nest) -> Nest:
        """Make the macro-kernel: loops over register tiles around the micro-kernel."""
        in_kernel = nest.group > 0
        rows = [
            Loop(dim, self._step(nest, dim), LoopKind.MICRO, (), in_kernel) for dim in nest.rows
        ]
        cols = Loop(nest.col, self.cols, LoopKind.MICRO, (), in_kernel)
        compute = replace(nest.compute, tile=MicroTile(self.rows, self.cols))
        if nest.algorithm:
            points, store = nest.body
            assert isinstance(points, Loop)
            points = replace(points, body=_nested(rows, (compute,)))
            return replace(nest, body=_nested([cols], (points, store)))
        loops = [cols, *rows] if self.outer == "cols" else [*rows, cols]
        return replace(nest, body=_nested(loops, (compute, nest.store)))

    def _step(self, nest: Nest, dim: str) -> int:
        """Return the step of a row dim: the tile's rows, a whole group of channels, or one."""
        if dim == nest.row:
            return self.rows
        return nest.group if dim == "co" else 1


def _nested(loops: list[Loop], body: tuple[Node, ...]) -> tuple[Node, ...]:
    for loop in reversed(loops):
        body = (replace(loop, body=body),)
    return body
