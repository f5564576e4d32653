"""`instruction`: multiply and add by one of several instructions."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, ClassVar

from tilewise.kernels.instructions import NAMES, WITH_CHOICE, Form, known, known_instruction
from tilewise.kernels.nest import Compute, Nest
from tilewise.kernels.steps.base import Part, Place, Step, register_step


@register_step
class InstructionChoice(Step):
    """Multiply and add by one of several instructions that processors have for the element type.

    TVM tensorize, Halide's choice of an intrinsic, IREE's intrinsics of a data layout. The native
    lowering alone: scripts say it in a comment.

        instruction op=x86.avx512.fma.f32
        register rows=6 cols=64 outer=cols
    before                          after
        C += A * B                      C += A * B  # by x86.avx512.fma.f32

    bf16, bytes, quantised weights, and f16 where there are tiles of it, have a choice
    (`tilewise.kernels.instructions`). Without the step kernels take the target's instruction with
    the most products that is not of matrix tiles.
    """

    name: ClassVar[str] = "instruction"
    place: ClassVar[Place] = Place.INSTRUCTION
    words: ClassVar[Mapping[str, Collection[str]]] = {"op": NAMES}
    choices: ClassVar[tuple[str, ...]] = ("instruction",)
    op: str

    @classmethod
    def chosen(cls, choice: str, value: Any, part: Part) -> Iterable[Step]:
        """Return the step, where there is an instruction to choose."""
        return [cls(value)] if value else []

    def check(self, nest: Nest) -> None:
        """Raise unless some target has the instruction for the type and form of the reduction."""
        dtype, is_split = nest.factors, nest.compute.lanes > 1
        names = known(dtype, is_split, nest.problem.accuracy)
        has_tiles = any(Form.TILES in known_instruction(one).forms for one in names)
        if not (has_tiles or dtype in WITH_CHOICE) or nest.group or nest.algorithm:
            raise self.refused(nest, "there is one way to multiply here; drop the step")
        if self.op not in names:
            form = "a split reduction" if is_split else "a reduction that is not split"
            raise self.refused(nest, f"{form} of {dtype} has {', '.join(names)}")

    def apply(self, nest: Nest) -> Nest:
        """Name the instruction of the micro-kernel."""
        return nest.with_fields(Compute, instruction=self.op)
