"""Register tiles of single columns, for results too narrow to fill vectors.

Such a tile is `ROWSxCOLSsVECTORS`: each element of C is summed in so many vectors along
the reduction, by a split step. They are offered beside the ordinary tiles only where
one operand is streamed and hardly used twice.
"""

from dataclasses import dataclass

from kernels.problem import Matmul, Problem
from kernels.target.model import Target

SIZES = (1, 2, 4, 8, 16)
VECTORS = (1, 2, 4, 8)
MOST_ROWS_IN_PLACE = 4
CHAINS = 8  # multiply-adds that must be under way to hide their latency
MARK = "s"


@dataclass(frozen=True)
class SplitTile:
    """Rows and columns of C, and accumulator vectors of each element."""

    rows: int
    cols: int
    vectors: int

    def __str__(self) -> str:
        return f"{self.rows}x{self.cols}{MARK}{self.vectors}"

    @classmethod
    def parse(cls, text: str) -> "SplitTile | None":
        """Read a tile back; None for an ordinary one."""
        size, mark, vectors = text.partition(MARK)
        if not mark:
            return None
        rows, cols = size.split("x")
        return cls(int(rows), int(cols), int(vectors))

    def fits(self, registers: int) -> bool:
        """Whether all sums of the tile fit the registers, so that it is computed at once."""
        return self.rows * self.cols * self.vectors + self.cols + 1 <= registers

    def chains(self, registers: int) -> int:
        """Accumulators that are added to side by side."""
        if self.fits(registers):
            return self.rows * self.cols * self.vectors
        return self.vectors * (self.cols if self.rows > 1 else 1)


def split_tiles(problem: Problem, target: Target) -> tuple[SplitTile, ...]:
    """The tiles to offer for `problem`; none where columns fill vectors."""
    if not isinstance(problem, Matmul) or not _is_thin(problem, target):
        return ()
    lanes, registers = target.lanes(problem.dtype), target.vector_registers
    tiles = [
        SplitTile(rows, cols, vectors)
        for vectors in VECTORS
        for cols in _sizes(problem.n)
        for rows in _sizes(problem.m)
        if vectors == 1 or vectors * lanes <= problem.k
    ]
    able = [t for t in tiles if t.chains(registers) + t.cols + 1 <= registers]
    wanted = min(CHAINS, max(t.chains(registers) for t in able))
    return tuple(t for t in able if t.chains(registers) >= wanted)


def _is_thin(problem: Matmul, target: Target) -> bool:
    """Whether most lanes of a row of C are idle, or B is used few times and lies along k."""
    if problem.transpose_a and problem.m > 1:
        return False
    is_narrow = 2 * problem.n <= target.lanes(problem.dtype)
    return is_narrow or (problem.m <= MOST_ROWS_IN_PLACE and problem.transpose_b)


def _sizes(extent: int) -> list[int]:
    """Powers of two up to the extent, and a small extent itself."""
    own = {extent} if extent <= CHAINS else set()
    return sorted({size for size in SIZES if size <= extent} | own)
