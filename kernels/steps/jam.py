"""`jam`: put iterations of an outer loop into the register tile."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar

from tilewise.kernels.nest import Compute, Loop, Nest, Node
from tilewise.kernels.steps.base import Part, Place, Step, register_step


@register_step
class Jam(Step):
    """Unroll a loop outside of the tile's rows and fuse its copies into the register tile.

    LLVM and MLIR unroll-and-jam (`loop.unroll_and_jam`), Halide and TVM unroll of a loop that is
    reordered inwards.

        jam dim=oh factor=2
    before                          after
        for oh step 1:                  for oh step 2:
            for ow step 4:                  for ow step 4:
                C += A * B  # 4x16              C += A * B  # 2x4x16

    What neighbouring iterations read alike is then loaded once, as the lines of an image that two
    output lines share.
    """

    name: ClassVar[str] = "jam"
    place: ClassVar[Place] = Place.JAM
    choices: ClassVar[tuple[str, ...]] = ("lines",)
    dim: str
    factor: int

    @classmethod
    def chosen(cls, choice: str, value: Any, part: Part) -> Iterable[Step]:
        """Return the step for several lines."""
        return [cls("oh", value)] if value > 1 else []

    def check(self, nest: Nest) -> None:
        """Raise unless lines of a depthwise result are outside of the tile's rows."""
        if not nest.group:
            raise self.refused(nest, "only where a group has few channels; drop the step")
        if nest.row == "oh" or self.dim != "oh":
            why = "lines outside of the rows of a register tile are jammed alone"
            raise self.refused(nest, why)
        lines = nest.extent("oh")
        if not 2 <= self.factor <= lines:
            raise self.refused(nest, f"oh is {lines}; give factor=2 to {lines}")

    def apply(self, nest: Nest) -> Nest:
        """Widen the loop over lines, and the tile."""

        def widened(node: Node) -> Node:
            if isinstance(node, Loop) and node.dim == self.dim:
                return replace(node, step=self.factor)
            return node

        tile = replace(nest.tile, lines=self.factor)
        return nest.mapped(widened).with_fields(Compute, tile=tile)
