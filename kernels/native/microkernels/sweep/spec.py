"""What the code of a sweeping micro-kernel depends on."""

from dataclasses import dataclass

from tilewise.kernels.arithmetic import Arithmetic
from tilewise.kernels.errors import LoweringError
from tilewise.kernels.native.microkernels.abi import epilogue_flags
from tilewise.kernels.native.strides import Strides
from tilewise.kernels.nest import Fetch, Nest
from tilewise.kernels.target.model import Target

MOST_SHARING_ROWS = 64


@dataclass(frozen=True)
class SweepSpec:
    """All that the code of a sweeping micro-kernel depends on.

    Attributes:
        how: the arithmetic; words are joined, and elements widened, as they are loaded.
        all_rows: of the result.
        rows: of a register tile; the last one of all has what is left.
        vectors: columns that are computed at once, in vectors.
        lanes: elements of an accumulator vector.
        depth: rows of B that are read side by side.
        streams: parts of the reduction that a chunk has its rows from.
        whole: elements of the reduction that all whole chunks have; 0 where no code asks.
        a_row, b_row: elements between rows of A and of B.
        registers: vector registers of the target.
        fetch: the prefetch of rows further on; None for none.
        epilogue: which of `ADD_BIAS` and `RELU` a call may ask for, and `CEILING`.
    """

    how: Arithmetic
    all_rows: int
    rows: int
    vectors: int
    lanes: int
    depth: int
    streams: int
    whole: int
    a_row: int
    b_row: int
    registers: int
    epilogue: int
    fetch: Fetch | None

    @property
    def cols(self) -> int:
        """Columns that are computed at once, in elements."""
        return self.vectors * self.lanes

    @property
    def words(self) -> int:
        """Words of a chunk."""
        return self.depth // self.how.depth

    def joins(self, vectors: int) -> bool:
        """Whether whole vectors of rows are joined to words, which gives them an order."""
        return self.how.depth > 1 and vectors % self.how.depth == 0

    @property
    def shares_words(self) -> bool:
        """Whether words are joined once for all register tiles of a group of columns.

        Their sums are visited group by group then. What is joined anew for each tile lets registers
        hold A, which words gathered from several streams need. The stack has a correction of each
        row, so that there is room for few.
        """
        has_room = self.rows < self.all_rows <= MOST_SHARING_ROWS
        return self.joins(self.vectors) and has_room and self.streams == 1

    @property
    def holds_a(self) -> bool:
        """Whether registers hold A's chunk beside the sums."""
        sums = self.rows * self.vectors
        return self.rows * self.words + sums + self.how.depth + 1 <= self.registers

    def step(self, place: int) -> int:
        """How far from the chunk's first row the row at a place of it is, in rows of B."""
        return place % self.streams * (self.whole // self.streams) + place // self.streams

    def steps(self, multiply_adds: int) -> int:
        """Steps of the reduction that so many vector multiply-adds take."""
        return multiply_adds // (self.rows * self.vectors)


def sweep_spec(nest: Nest, target: Target, strides: Strides, how: Arithmetic) -> SweepSpec:
    """Return the sweeping micro-kernel that a nest asks for.

    Raises:
        LoweringError: columns that are no whole vectors of the target, or a depth that is no
            whole number of the words that are multiplied at once; several streams of joined words
            whose factors of A do not fit the registers.
    """
    problem, tile, k_block = nest.problem, nest.tile, nest.k_block
    assert k_block is not None
    dtype, depth = problem.element.name, k_block.step
    lanes = target.lanes(dtype)
    if tile.cols % lanes:
        raise LoweringError(
            f"step register: cols={tile.cols} is not a multiple of the "
            f"{lanes} {dtype} lanes of {target.cpu}"
        )
    if depth % how.depth:
        raise LoweringError(
            f"{problem}: sweeping {depth} rows of B is no multiple of the {how.depth} elements "
            "that are multiplied at once"
        )
    whole = nest.extent(nest.k) // depth * depth
    spec = SweepSpec(
        how=how,
        all_rows=nest.extent(nest.row),
        rows=tile.rows,
        vectors=tile.cols // lanes,
        lanes=lanes,
        depth=depth,
        streams=k_block.streams,
        whole=whole if k_block.streams > 1 or how.offset else 0,
        a_row=strides.a.dims[nest.row],
        b_row=strides.b.stream,
        registers=target.vector_registers,
        epilogue=epilogue_flags(nest.store),
        fetch=next(iter(nest.fetches), None),
    )
    if spec.streams > 1 and how.depth > 1 and not spec.holds_a:
        raise LoweringError(
            f"{problem}: {spec.words} words of {spec.rows} rows of A, gathered from "
            f"{spec.streams} streams, do not fit the {spec.registers} registers of {target.cpu} "
            "beside the sums; stream fewer rows at once, or drop the step interleave"
        )
    return spec
