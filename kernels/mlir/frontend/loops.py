"""Ops that compute element by element, or reduce rows, as loops around a list of instructions."""

from dataclasses import dataclass
from typing import Literal

Combine = Literal["", "sum", "max", "maxnum", "min", "minnum"]
"""How the last loops reduce; empty where none does. `max` and `min` keep what is not a number."""


@dataclass(frozen=True)
class Access:
    """How an op reads a tensor.

    Attributes:
        read: the place among what the node reads; None for a constant.
        constant: the role under which a program has the constant's values; empty for an activation.
        dtype: of its elements, f32 or bf16.
        steps: elements from one index of each loop to the next, in the tensor as the node has it.
    """

    read: int | None
    constant: str
    dtype: str
    steps: tuple[int, ...]


@dataclass(frozen=True)
class Instruction:
    """One value of a body.

    Attributes:
        name: `read`, `number`, or an operation of `kernels.mlir.frontend.loops.OPERATIONS`.
        of: the earlier instructions that it is applied to.
        number: of an access, of the module's constant, or the predicate of a comparison.
    """

    name: str
    of: tuple[int, ...] = ()
    number: float = 0.0


@dataclass(frozen=True)
class Loops:
    """A nest around a body, which writes its result in the order of the loops.

    Attributes:
        extents: of the loops.
        reduced: how many of the last loops reduce.
        combine: how.
        accesses: what is read.
        body: instructions; the last of them is the result, or what is reduced.
        dtype: of the result's elements.
    """

    extents: tuple[int, ...]
    reduced: int
    combine: Combine
    accesses: tuple[Access, ...]
    body: tuple[Instruction, ...]
    dtype: str

    @property
    def is_copy(self) -> bool:
        """Whether it does no more than put elements elsewhere."""
        return len(self.body) == 1 and not self.reduced and self.accesses[0].dtype == self.dtype


OPERATIONS: dict[str, str] = {
    "arith.addf": "add",
    "arith.subf": "subtract",
    "arith.mulf": "multiply",
    "arith.divf": "divide",
    "arith.negf": "negate",
    "arith.maximumf": "max",
    "arith.maxnumf": "maxnum",
    "arith.minimumf": "min",
    "arith.minnumf": "minnum",
    "arith.cmpf": "compare",
    "arith.select": "select",
    "arith.truncf": "narrow",
    "arith.extf": "widen",
    "math.absf": "abs",
    "math.fma": "multiply add",
    "math.sqrt": "sqrt",
    "math.rsqrt": "rsqrt",
    "math.exp": "exp",
    "math.erf": "erf",
    "math.tanh": "tanh",
}
"""What a body may do, by the names of MLIR: of f32; `narrow` rounds to bf16."""
