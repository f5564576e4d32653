"""`pack`: copy the block of an operand to contiguous memory."""

from collections.abc import Iterable
from typing import Any, ClassVar

from tilewise.kernels.nest import Fetched, Layout, Nest, Role, Stage
from tilewise.kernels.steps.base import OperandName, Part, Step, register_step


@register_step
class Pack(Step):
    """Copy the operand's current block to contiguous panels. Halide compute_at, TVM cache_read,
    transform structured.pack.

        pack operand=B
    before                          after
        for n step 64: tiles            for n step 64:
                                            pack B to panels
                                            tiles

    B is packed to panels [col/NR][taps][depth][NR], zero-filled past the last column; A to rows of
    `depth` elements, for an nhwc image with the halo and the zero padding. With an algorithm of
    fewer products the copy is transformed. Constant weights are packed once, before all runs.

    Natively a panel of f32, f64 or i32 is filled while its first tile of rows is computed, from the
    rows of B that the micro-kernel has loaded; so its packing costs stores alone.
    """

    name: ClassVar[str] = "pack"
    words: ClassVar[dict[str, tuple[str, ...]]] = {"operand": ("A", "B")}
    choices: ClassVar[tuple[str, ...]] = ("pack_a", "pack_b")
    operand: OperandName

    @classmethod
    def chosen(cls, choice: str, value: Any, part: Part) -> Iterable[Step]:
        """Return the pack of the operand, where it is wanted."""
        return [cls("A" if choice == "pack_a" else "B")] if value else []

    def check(self, nest: Nest) -> None:
        """Raise unless the operand is read in place so far, one single block of it at a time."""
        if nest.group:
            raise self.refused(nest, "the image is read in place; drop the step")
        if nest.is_skinny:
            raise self.refused(nest, "a skinny GEMM reads both factors in place; drop the step")
        if nest.stage(self.operand):
            raise self.refused(nest, "it is already packed")
        operand = nest.operand(self.operand)
        if self.operand == "A" and nest.compute.lanes > 1 and not operand.is_contiguous(nest.k):
            raise self.refused(nest, "rows of a transposed A are not contiguous, even packed")
        if self.operand == "B" and any(f.what is Fetched.NEXT_BLOCK for f in nest.fetches):
            raise self.refused(nest, "the prefetch of B comes after its pack")
        for dim in nest.dims:
            is_one_of_many = dim.single and dim.role is not Role.POINT and dim.name in operand.dims
            if is_one_of_many and nest.enclosing(dim.name) != 1:
                why = f"one {dim.name} is packed at a time; put tile dim={dim.name} size=1 first"
                raise self.refused(nest, why)

    def apply(self, nest: Nest) -> Nest:
        """Put the stage right before the macro-kernel."""
        is_ahead = self.operand == "B" and nest.operand("B").is_constant
        transforms = nest.algorithm is not None
        return nest.inside(Stage(self.operand, self._layout(nest), transforms, is_ahead))

    def _layout(self, nest: Nest) -> Layout:
        if self.operand == "B":
            return Layout.PANELS_ALONG_K if nest.compute.lanes > 1 else Layout.PANELS
        if nest.algorithm:
            return Layout.POINTS
        return Layout.IMAGE if nest.image == "A" else Layout.ROWS
