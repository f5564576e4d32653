"""`Instruction`: the declaration of one instruction that multiplies and adds.

A declaration has all that differs between instructions: the shape of what one computes, element
types, what it means in NumPy, the LLVM intrinsic, what it needs of a processor, what it costs, and
which forms of micro-kernel can use it. Exo's `@instr` and tinygrad's `TensorCore` are the model.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from tilewise.kernels.problem.keys import DTYPES
from tilewise.kernels.target.cores import Core

if TYPE_CHECKING:
    import numpy.typing as npt

Meaning = Callable[["npt.NDArray[Any]", "npt.NDArray[Any]", "npt.NDArray[Any]"], "npt.NDArray[Any]"]
"""C [.., rows, cols], A [.., rows, k] and B [.., k, cols] to the new C."""

UNSIGNED_OFFSET = 128
"""What makes an i8 a u8: both have it as their highest bit."""


class Form(Enum):
    """A form of micro-kernel, by how it feeds the instruction.

    An outer product and a sweep multiply one word of A, in every lane, with a vector of words of B.
    A split reduction multiplies two vectors along the reduction, as they are stored. A depthwise
    tile multiplies vectors of channels.
    """

    OUTER_PRODUCT = "outer product"
    SKINNY = "skinny"
    SPLIT = "split"
    DEPTHWISE = "depthwise"


@dataclass(frozen=True)
class Instruction:
    """One instruction; C[rows, cols] += A[rows, k] * B[k, cols].

    `k` elements of the reduction lie side by side in the registers of both factors: they are the
    word that panels are made of. Where `a` is u8 and `b` is i8, signed elements of A are packed
    with 128 added, and C is corrected by sums over B; a sweep exchanges the factors.

    Attributes:
        name: vector unit and mnemonic, such as `x86.avx512.vdpbf16ps`, as schedules have it.
        rows, cols: of C.
        k: elements that are summed into each element of C.
        a, b, c: element types as they are multiplied and accumulated.
        meaning: in NumPy, on arrays of a type that holds the elements exactly.
        intrinsic: LLVM's, with `{}` for the type of the accumulators; empty for LLVM's own product.
        arguments: of the intrinsic, in their order. Without `acc` the product is added by a second
            instruction.
        assembly: a pattern of what LLVM prints for it; empty for the mnemonic of its name.
        widened: the integer type to which factors are extended in registers; empty for none.
        features: LLVM's names of the extensions that it needs.
        unless: of those that have a better one for the same.
        forms: that can use it.
        slots: of a multiply-add unit that it takes, unless the table of cores has another number.
    """

    name: str
    rows: int
    cols: int
    k: int
    a: str
    b: str
    c: str
    meaning: Meaning = field(repr=False)
    intrinsic: str = ""
    arguments: tuple[str, ...] = ("acc", "x", "y")
    assembly: str = field(default="", repr=False)
    widened: str = ""
    features: frozenset[str] = field(default=frozenset(), repr=False)
    unless: frozenset[str] = field(default=frozenset(), repr=False)
    forms: frozenset[Form] = field(default=frozenset(Form), repr=False)
    slots: int = field(default=1, repr=False)

    @property
    def unit(self) -> str:
        """The vector unit, such as `x86.avx512`."""
        return ".".join(self.name.split(".")[:2])

    @property
    def mnemonic(self) -> str:
        """The name within the unit."""
        return self.name.removeprefix(f"{self.unit}.")

    def is_printed_as(self, mnemonic: str) -> bool:
        """Whether it has a mnemonic in assembly."""
        return re.fullmatch(self.assembly or self.mnemonic, mnemonic) is not None

    @property
    def adds(self) -> bool:
        """Whether it also adds."""
        return "acc" in self.arguments

    def slots_on(self, core: Core) -> int:
        """Return the slots of a multiply-add unit that it takes on a core."""
        return core.slots.get(self.mnemonic, self.slots)

    @property
    def offset(self) -> int:
        """What is added to elements of A that are stored signed."""
        return UNSIGNED_OFFSET if (self.a, self.b) == ("u8", "i8") else 0

    def takes(self, dtype: str) -> bool:
        """Whether it multiplies elements of a problem's type, as they are or widened."""
        accumulator = DTYPES[dtype].accumulator
        return self.c == accumulator and self.b in (dtype, accumulator)
