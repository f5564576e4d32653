"""The nodes of a loop nest: loops, stages, prefetches, the micro-kernel and the store of C.

All are frozen, and print as a line of text. What follows from the tree (trips, block sizes, shapes
of stages) is no field of a node: `Nest.visit` derives it, so that no rewrite leaves a stale number.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Literal, Protocol

from tilewise.kernels.nest.access import Operand
from tilewise.kernels.problem import EPILOGUES, Epilogue

if TYPE_CHECKING:
    from tilewise.kernels.problem.keys import Array

    Indices = Mapping[str, Array]


class LoopKind(Enum):
    """Why there is a loop, and so how it may run."""

    PARALLEL = "parallel"
    """Its trips run at the same time, each in a thread; nothing orders them."""
    TILE = "tile"
    """Blocks of a dim of the result, one after another."""
    K_BLOCK = "k-block"
    """Chunks of the reduction; C is added to in the order of the trips."""
    MICRO = "micro"
    """Register tiles of a block, or points of a transformed one: the macro-kernel."""


@dataclass(frozen=True)
class Loop:
    """A loop over blocks of `dim`.

    Attributes:
        dim: what is cut.
        step: the length of a block; the last one may be shorter.
        kind: why.
        body: in order.
        in_kernel: whether the micro-kernel's own code has this loop (a call per block of the
            loops outside), not the macro-kernel around it.
        streams: interleaved k-streams: equal parts of the dim, of which each block takes the next
            steps; 1 for neighbours.
    """

    dim: str
    step: int
    kind: LoopKind
    body: tuple["Node", ...] = ()
    in_kernel: bool = False
    streams: int = 1

    def __str__(self) -> str:
        return f"for {self.dim} step {self.step}"


class Layout(Enum):
    """The layout of a staged block."""

    PANELS = "panels"
    """B: [panel][tap or point][k][cols of a tile], zero past the last column."""
    PANELS_ALONG_K = "panels along k"
    """B for a split reduction: [panel][tap][cols of a tile][k]."""
    ROWS = "rows"
    """A: [row][k]."""
    IMAGE = "image"
    """An nhwc image: [line][pixel][k], with halo and padding."""
    POINTS = "points"
    """A, transformed: [point][tile][k]."""


@dataclass(frozen=True)
class Stage:
    """Copy the block of an operand that the loops around leave, for the nodes that follow.

    Attributes:
        operand: A or B.
        layout: of the copy.
        transforms: whether the nest's algorithm computes it on the way (Winograd, Strassen).
        is_ahead: whether it is made of the whole operand, once, before all runs: constant weights.
    """

    operand: str
    layout: Layout
    transforms: bool = False
    is_ahead: bool = False

    def __str__(self) -> str:
        return f"{'transform' if self.transforms else 'pack'} {self.operand} to {self.layout.value}"


class Fetched(Enum):
    """What a prefetch brings closer."""

    NEXT_BLOCK = "the next block"
    NEXT_PANEL = "the panel behind"
    ROWS_AHEAD = "rows further on"


@dataclass(frozen=True)
class Fetch:
    """Prefetch an operand while the nodes that follow compute. It has no meaning but time.

    Attributes:
        operand: of which lines are fetched.
        what: of it.
        distance: bytes from what is read to what is fetched; 0 where the loops around say where.
        level: of the cache that lines come to.
    """

    operand: str
    what: Fetched
    distance: int
    level: Literal[1, 2]

    def __str__(self) -> str:
        ahead = f", {self.distance} bytes ahead" if self.distance else ""
        return f"prefetch {self.what.value} of {self.operand} to L{self.level}{ahead}"


@dataclass(frozen=True)
class MicroTile:
    """The register tile: `rows` x `cols` of C, for each of `lines` jammed iterations of a loop."""

    rows: int
    cols: int
    lines: int = 1


@dataclass(frozen=True)
class Compute:
    """The micro-kernel: add A times B over the whole k-block and all taps to a tile of C.

    Attributes:
        tile: None while nothing has tiled the block.
        instruction: the name of what multiplies and adds; None where the target's default does.
        lanes: partial sums of each element of C, k apart: vectors along the reduction.
        unroll: steps of the reduction in an iteration.
    """

    tile: MicroTile | None = None
    instruction: str | None = None
    lanes: int = 1
    unroll: int = 1

    def __str__(self) -> str:
        return "C += A * B"


@dataclass(frozen=True)
class Store:
    """End the sums of the block: initial value and bias first, epilogue last, once each.

    With k-blocks outside, the first trip begins the sums, the last one applies the epilogue, and
    C holds partial sums between. After the loop over points it transforms the products to C.

    Attributes:
        adds_to_c: whether the sums begin from what C holds (init=accumulate).
        has_bias: whether a bias is added for each column (or row, for nchw).
        has_addition: whether a tensor of C's shape is added before the epilogue.
        epilogue: what is applied to the sums.
        is_nontemporal: whether it bypasses the caches.
        transforms: whether the nest's algorithm makes C of the products of all points.
        requant: whether one scale (`tensor`) or that of a column (`channel`) makes bytes of sums.
        rounds_to: the type of results after the epilogue, where it is not that of the sums.
    """

    adds_to_c: bool = False
    has_bias: bool = False
    epilogue: Epilogue = EPILOGUES["none"]
    is_nontemporal: bool = False
    transforms: bool = False
    rounds_to: str = ""
    has_addition: bool = False
    requant: str = ""

    @property
    def finishes_apart(self) -> bool:
        """Return whether sums have memory of their own until C is made of them in the end."""
        return bool(self.rounds_to) or self.has_addition or self.epilogue.is_smooth

    def __str__(self) -> str:
        ends = ["bias"] * self.has_bias + ["addition"] * self.has_addition
        ends += ["relu"] * self.epilogue.is_relu + [self.epilogue.name] * self.epilogue.is_smooth
        ends += [f"at most {self.epilogue.ceiling}"] * (self.epilogue.ceiling is not None)
        ends += [f"rounded to {self.rounds_to}"] * bool(self.rounds_to)
        ends += ["past the caches"] * self.is_nontemporal
        verb = "transform products to C" if self.transforms else "store C"
        return verb + " + C" * self.adds_to_c + (f" ({', '.join(ends)})" if ends else "")


Node = Loop | Stage | Fetch | Compute | Store


class Algorithm(Protocol):
    """A bilinear algorithm that computes C with fewer multiplications than the direct method.

    It transforms blocks of A and B, and the products of all points to tiles of C.
    """

    @property
    def name(self) -> str:
        """Return the name of its step."""

    @property
    def tile(self) -> tuple[int, int]:
        """Return what one row of a transformed block is: pixels, or rows and columns, of C."""

    @property
    def tiles_pixels(self) -> bool:
        """Return whether tiles are of pixels; else of rows and parts of the columns."""

    @property
    def roundings(self) -> int:
        """Return the most roundings of a value in the three transforms."""

    def magnitudes(self) -> "Algorithm":
        """Return the algorithm with the magnitudes of all coefficients, which bounds its error."""

    def stored(self, role: str) -> "Operand":
        """Return A or B as the problem stores it, which the stages read."""

    def stage(self, role: str, arrays: "Mapping[str, Array]", at: "Indices") -> "Array":
        """Return the transformed block of A, [point, t, k], or of B, [point, k, col]."""

    def combine(
        self, products: "Array", at: "Indices"
    ) -> "Iterator[tuple[tuple[Array, ...], Array, Array]]":
        """Yield places of C as stored, their columns, and sums, of products [point, t, col]."""
