"""What every form of micro-kernel provides, and how a nest uses it: which tiles are cut or rare."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from math import prod
from typing import Any, ClassVar, Literal, Protocol, Self

from llvmlite import ir

from tilewise.kernels.arithmetic import Arithmetic, size_of
from tilewise.kernels.instructions import Form
from tilewise.kernels.native.microkernels.abi import FINISH_ROWS
from tilewise.kernels.native.packing.finish import FinishSpec, Scales, emit_finish_rows
from tilewise.kernels.native.packing.panels import emit_copy_rows, emit_pack_panel
from tilewise.kernels.native.strides import Strides
from tilewise.kernels.nest import Compute, Nest, Role, Stage, Store
from tilewise.kernels.nest.counts import Lengths, blocks_at, visits
from tilewise.kernels.target.model import Target

Cut = Literal["", "rows", "cols", "rows and cols"]
"""The sides on which C cuts tiles off."""

RARE_SHARE = 0.1
"""Of the time of all calls. Loops over single steps took up to 7% longer (f32, f64; 12 cases)."""


@dataclass(frozen=True)
class Use:
    """Which micro-kernels a nest needs in addition to the one for whole tiles.

    Attributes:
        cut: the sides on which tiles may be cut off.
        rare: names of those that are rarely called. Their loops are not unrolled: that would gain
            nothing, take twice as long to compile, and be done again for each factor.
        finishes: what a function of its own makes of whole sums; None where they are C.
        scales: which of them have a scale of their own, where they become bytes.
        has_fma, has_bf16: instructions of the target that this function may use.
    """

    cut: Cut = "rows and cols"
    rare: frozenset[str] = frozenset()
    finishes: Store | None = None
    scales: Scales = ""
    has_fma: bool = False
    has_bf16: bool = False


ANY_USE = Use()


@dataclass(frozen=True)
class Piece:
    """One function, before it is compiled.

    Attributes:
        name: what it does; one name, one emitter.
        given: what the emitter takes with the module; these and the name decide the code.
        emitter: adds the function to a module.
        is_as_written: whether its vectors and loops are final, so that it needs no LLVM passes.
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
        """Return the steps of the reduction that so many vector multiply-adds take."""


class MicroKernel(Hashable, Protocol):
    """One form of micro-kernel; an instance is that of one nest."""

    form: ClassVar[Form]

    @property
    def spec(self) -> KernelSpec:
        """What the code depends on."""

    @classmethod
    def serves(cls, nest: Nest) -> bool:
        """Return whether a nest asks for this form."""

    @classmethod
    def of(cls, nest: Nest, target: Target, strides: Strides, how: Arithmetic) -> Self:
        """Return the one for a nest.

        Raises:
            LoweringError: the nest needs what the target lacks.
        """

    def pieces(self, use: Use = ANY_USE) -> dict[str, Piece]:
        """Return its functions as they are used, by their names in `FUNCTIONS`.

        Where no tile is cut, the one for cut tiles takes all, and is never called.
        """


def pieces_of(kernel: MicroKernel, use: Use = ANY_USE) -> dict[str, Piece]:
    """Return what a macro-kernel may call: a micro-kernel's functions, and what makes C of sums."""
    pieces, store, sums = kernel.pieces(use), use.finishes, kernel.spec.how.accumulator
    if store is not None:
        spec = FinishSpec(
            sums,
            store.rounds_to or sums,
            store.epilogue.name,
            adds=store.has_addition or store.adds_to_c,
            vector_bytes=kernel.spec.lanes * size_of(sums),
            scales=use.scales,
            has_fma=use.has_fma,
            has_bf16=use.has_bf16,
            fetches=kernel.form is not Form.TILES,  # whose C is rather in L2; it cost them 7%
        )
        pieces[FINISH_ROWS] = Piece("finished rows", (spec,), emit_finish_rows)
    return pieces


def packs_of_a(spec: KernelSpec) -> dict[str, Piece]:
    """Return the packs of A: of a strip of a transposed one, and of rows."""
    row_bytes = spec.lanes * size_of(spec.how.accumulator)
    strip = (spec.how, spec.lanes, 1, True)
    return {
        "pack_a_panel": Piece("strip of a", strip, emit_pack_panel),
        "copy_rows": Piece("rows of a", (spec.how, row_bytes), emit_copy_rows),
    }


def use_of(nest: Nest, lanes: int, target: Target) -> Use:
    """Return what `nest` needs on a target with vectors of `lanes` elements.

    The names are those of the micro-kernels for tiles at an `edge`, and those `filling` a panel.
    Of several threads one may have nothing but such tiles, and the others wait for it.
    """
    rows = cols = filling = 0.0
    for node, blocks in blocks_at(nest):
        if isinstance(node, Stage) and node.operand == "B":
            filling = float(_panels(nest, blocks))
        elif isinstance(node, Compute):
            filling /= visits(nest, blocks)
            rows = _cut_share(blocks[nest.row], nest.tile.rows)
            cols = _cut_share(blocks[nest.col], nest.tile.cols, lanes)
    shares = {"edge": rows + cols - rows * cols, "filling": filling}
    is_alone = len(nest.parts) == 1
    rare = frozenset(name for name, share in shares.items() if is_alone and share <= RARE_SHARE)
    finishes = nest.store if nest.store.finishes_apart else None
    scales: Scales = "one" if nest.store.requant == "tensor" else ""
    if nest.store.requant == "channel":
        scales = "columns" if nest.col in nest.operand("bias").dims else "rows"
    cut, has_bf16 = _cut(rows > 0, cols > 0), "avx512bf16" in target.features
    return Use(cut, rare, finishes, scales, target.has_fma, has_bf16)


def _cut(rows: bool, cols: bool) -> Cut:
    return "rows and cols" if rows and cols else "rows" if rows else "cols" if cols else ""


def _cut_share(tiles: Lengths, whole: int, vector: int = 0) -> float:
    """The share of the time of a dim's tiles, given by their lengths, that cut ones take.

    A cut tile takes as long as a whole one, but for one that is left with a single vector.
    """
    cut = sum(
        times * (vector / whole if length <= vector < whole else 1)
        for length, times in tiles.items()
        if length != whole
    )
    return cut / (cut + tiles[whole])


def _panels(nest: Nest, blocks: dict[str, Lengths]) -> int:
    """How many panels of B are packed."""
    cols = nest.tile.cols
    return prod(
        sum(-(-length // cols) * times for length, times in lengths.items())
        if dim == nest.col
        else lengths.total()
        for dim, lengths in blocks.items()
        if nest.dim(dim).role is not Role.TAP
    )
