"""The iteration space of a problem: its loops, their extents, and who reads which.

Matmul and convolution are the same contraction seen from far enough: rows (of the
result) by columns (output channels) by a streamed reduction, with kh*kw taps
around it for a convolution. The schedule speaks of dims by name; everything that
must treat both operations alike asks this module for their roles.
"""

from dataclasses import dataclass

from kernels.problem.model import Conv2d, Matmul, Problem


@dataclass(frozen=True)
class IterationSpace:
    """Dims of a contraction and the role each plays.

    Attributes:
        extents: every dim with its extent, outermost first, as the problem states them.
        row_dims: dims of the result that B does not have; the last one is register-tiled.
        col: the dim that B and C share (n or co), register-tiled and vectorised.
        stream: the reduction dim that can be streamed in chunks (k or ci).
        taps: filter positions (kh*kw); 1 for a matmul.
        batch: a dim that every operand has (batch, or a convolution's groups g), or None.
    """

    extents: tuple[tuple[str, int], ...]
    row_dims: tuple[str, ...]
    col: str
    stream: str
    taps: int
    batch: str | None = None

    def extent(self, dim: str) -> int:
        """The extent of `dim`; KeyError when there is no such dim."""
        return dict(self.extents)[dim]

    @property
    def dims(self) -> tuple[str, ...]:
        """The names of the dims that a schedule can tile or stream."""
        return tuple(name for name, _ in self.extents)

    @property
    def row(self) -> str:
        """The row dim that the micro-kernel tiles (m or ow)."""
        return self.row_dims[-1]

    @property
    def operand_dims(self) -> dict[str, frozenset[str]]:
        """The dims that move each of A and B."""
        lead = {self.batch} if self.batch else set()
        return {
            "A": frozenset({*self.row_dims, self.stream, *lead}),
            "B": frozenset({self.col, self.stream, *lead}),
        }


def iteration_space(problem: Problem) -> IterationSpace:
    """The iteration space of `problem`."""
    if isinstance(problem, Matmul):
        lead = (("batch", problem.batch),) if problem.batch > 1 else ()
        return IterationSpace(
            extents=(*lead, ("m", problem.m), ("n", problem.n), ("k", problem.k)),
            row_dims=("m",),
            col="n",
            stream="k",
            taps=1,
            batch="batch" if lead else None,
        )
    if isinstance(problem, Conv2d):
        lead = (("g", problem.groups),) if problem.groups > 1 else ()
        return IterationSpace(
            extents=(
                *lead,
                ("n", problem.n),
                ("oh", problem.oh),
                ("ow", problem.ow),
                ("co", problem.co // problem.groups),
                ("ci", problem.ci // problem.groups),
            ),
            row_dims=("n", "oh", "ow"),
            col="co",
            stream="ci",
            taps=problem.kh * problem.kw,
            batch="g" if lead else None,
        )
    raise TypeError(f"no iteration space for {type(problem).__name__}")
