"""The micro-kernel of results with few rows, such as a vector times a matrix.

B is read once and hardly used, so how it streams by decides. Register tiles would walk down its
columns, a stripe of lines in every row; here several whole rows are read side by side, each from
one end to the other, and the sums of all columns stay in the first cache, which takes a load and a
store for every chunk of rows. Few long streams are what prefetchers follow and what a page of
memory holds; with 16 or more, a power of two apart, they collapse.

Of more rows than a register tile has, the chunk of B is read again for each tile, from a cache, and
joined to words again, which still costs less than packs that are used once.
"""

from dataclasses import dataclass
from typing import ClassVar, Self

from tilewise.kernels.arithmetic import Arithmetic
from tilewise.kernels.instructions import Form
from tilewise.kernels.native.microkernels.specs import Piece
from tilewise.kernels.native.microkernels.sweep.emit import emit_sweep
from tilewise.kernels.native.microkernels.sweep.spec import SweepSpec, sweep_spec
from tilewise.kernels.native.microkernels.use import ANYHOW, Use
from tilewise.kernels.native.strides import Strides
from tilewise.kernels.nest import Nest
from tilewise.kernels.target.model import Target


@dataclass(frozen=True)
class SweepKernel:
    """The micro-kernel of a schedule with a sweep step.

    Attributes:
        spec: what its code depends on.
    """

    spec: SweepSpec

    form: ClassVar[Form] = Form.SKINNY

    @classmethod
    def serves(cls, nest: Nest) -> bool:
        """Return whether columns are swept."""
        return nest.is_skinny

    @classmethod
    def of(cls, nest: Nest, target: Target, strides: Strides, how: Arithmetic) -> Self:
        """Return the one that a nest asks for; LoweringError for what the target has not."""
        return cls(sweep_spec(nest, target, strides, how))

    def pieces(self, use: Use = ANYHOW) -> dict[str, Piece]:
        """For whole chunks, and for what is left of the reduction."""
        return {
            name: Piece(f"{name} sweep", (self.spec, whole), emit_sweep, is_as_written=True)
            for name, whole in (("full", True), ("edge", False))
        }
