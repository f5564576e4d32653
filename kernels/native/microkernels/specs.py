"""What every kind of micro-kernel provides, and the functions that one is made of."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, Self

from llvmlite import ir

from tilewise.kernels.arithmetic import Arithmetic, size_of
from tilewise.kernels.instructions import Form
from tilewise.kernels.native.microkernels.use import ANYHOW, Use
from tilewise.kernels.native.packing.panels import emit_copy_rows, emit_pack_panel
from tilewise.kernels.native.strides import Strides
from tilewise.kernels.nest import Nest
from tilewise.kernels.target.model import Target


@dataclass(frozen=True)
class Piece:
    """One function, before it is compiled.

    Attributes:
        name: what it does; one name, one emitter.
        given: what the emitter takes beside the module; with the name, all that decides the code.
        emitter: adds the function to a module.
        is_as_written: whether its vectors and loops are as they shall be, so that no pass of
            LLVM's has to make them.
    """

    name: str
    given: tuple[Any, ...]
    emitter: Callable[..., ir.Function] = field(repr=False, compare=False)
    is_as_written: bool = False

    def emit(self, module: ir.Module) -> ir.Function:
        """Add the function to `module`."""
        return self.emitter(module, *self.given)


class KernelSpec(Protocol):
    """All that a micro-kernel's code depends on: a frozen value that prints in full."""

    @property
    def how(self) -> Arithmetic:
        """The arithmetic."""

    @property
    def lanes(self) -> int:
        """Elements of an accumulator vector."""

    @property
    def cols(self) -> int:
        """Columns of the register tile, in elements of C."""

    @property
    def epilogue(self) -> int:
        """Which of `ADD_BIAS` and `RELU` a call may ask for, and `CEILING`."""

    def steps(self, multiply_adds: int) -> int:
        """Steps of the reduction that so many vector multiply-adds take."""


class MicroKernel(Hashable, Protocol):
    """One kind of micro-kernel; an instance is that of one nest."""

    form: ClassVar[Form]

    @property
    def spec(self) -> KernelSpec:
        """What the code depends on."""

    @classmethod
    def serves(cls, nest: Nest) -> bool:
        """Return whether a nest asks for this kind."""

    @classmethod
    def of(cls, nest: Nest, target: Target, strides: Strides, how: Arithmetic) -> Self:
        """Return the one that a nest asks for.

        Raises:
            LoweringError: it asks for what the target has not.
        """

    def pieces(self, use: Use = ANYHOW) -> dict[str, Piece]:
        """Its functions as they are used, by their names in `FUNCTIONS`.

        Where no tile is cut, that for such tiles takes all, and is of no use.
        """


def packs_of_a(how: Arithmetic, lanes: int) -> dict[str, Piece]:
    """The packs of A, which are the same for every kind."""
    row_bytes = lanes * size_of(how.accumulator)
    return {
        "pack_a_panel": Piece("strip of a", (how, lanes, 1), emit_pack_a_strip),
        "copy_rows": Piece("rows of a", (how, row_bytes), emit_copy_rows),
    }


def emit_pack_a_strip(module: ir.Module, how: Arithmetic, lanes: int, vectors: int) -> ir.Function:
    """The pack of a strip of a transposed A."""
    return emit_pack_panel(module, how, lanes, vectors, for_a=True)
