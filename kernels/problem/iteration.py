"""The iteration space of a problem: its loops, their extents, and who reads which.

Matmul and convolution are the same contraction seen from far enough: rows (of the
result) by columns by a streamed reduction, with kh*kw taps around it for an nhwc
convolution. The schedule speaks of dims by name; everything that must treat both
operations alike asks this module for their roles.

A and B, in a schedule and below, are roles: the left factor, which has the rows, and
the right one, which has the columns. The contiguous dim of the result has to be the
columns. So for nhwc A is the image and B the filter, as the problem names them; for
nchw they change places, and A[co, k] is the filter as it lies, with k = (ci, kh, kw),
and B[k, p] the patches of one image, with a column for each pixel p = (oh, ow).

Where a group has few channels, as in a depthwise convolution, a product of its own would hardly
have columns. There the columns span the groups: for nhwc they are all channels of the result, for
nchw the pixels of a line, with lines as rows and every channel visited alone. The image is then
the factor that moves with every dim, and the filter moves with the channels alone.
"""

from dataclasses import dataclass

from tilewise.kernels.problem.base import Problem
from tilewise.kernels.problem.model import Conv2d, Matmul


@dataclass(frozen=True)
class IterationSpace:
    """Dims of a contraction and the role each plays.

    Attributes:
        extents: every dim with its extent, outermost first, as the problem states them.
        row_dims: dims of the result that B does not have; the last one is register-tiled.
        col: the dim that B and C share (n, co or p), register-tiled and vectorised.
        stream: the reduction dim that can be streamed in chunks (k or ci).
        taps: filter positions (kh*kw) around the reduction; 1 where it includes them.
        lead: dims of both B and C that are visited one at a time: batch, groups g, and the
            images n of nchw.
        image: the role that a convolution's image plays; empty for a matmul.
        patches: whether B is gathered from the image, and so exists only packed.
        group: channels of the result in a group, where rows and columns run over all groups and
            each element of the result reads its own group's part of the image; else 0.
        tile: pixels of the result, down and across, that a step along the rows stands for.
    """

    extents: tuple[tuple[str, int], ...]
    row_dims: tuple[str, ...]
    col: str
    stream: str
    taps: int
    lead: tuple[str, ...] = ()
    image: str = ""
    patches: bool = False
    group: int = 0
    tile: tuple[int, int] = (1, 1)

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
    def spans_groups(self) -> bool:
        """Whether rows and columns run over all groups, none of which is visited alone."""
        return self.group > 0

    @property
    def singles(self) -> tuple[str, ...]:
        """The dims that are visited one at a time: `lead`, and the images of nhwc."""
        return (*self.lead, *(self.row_dims[:1] if len(self.row_dims) > 1 else ()))

    @property
    def operand_dims(self) -> dict[str, frozenset[str]]:
        """The dims that move each of A and B; a filter is the same for every image."""
        if self.spans_groups:
            filter_role = "B" if self.image == "A" else "A"
            return {self.image: frozenset(self.dims), filter_role: frozenset({"co", self.stream})}
        shared = [d for d in self.lead if not (d == "n" and self.image == "B")]
        return {
            "A": frozenset({*self.row_dims, self.stream, *shared}),
            "B": frozenset({self.col, self.stream, *self.lead}),
        }

    def operand(self, role: str) -> str:
        """The problem's name for the operand that plays A or B."""
        return {"A": "B", "B": "A"}[role] if self.image == "B" else role


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
            lead=tuple(name for name, _ in lead),
        )
    if isinstance(problem, Conv2d):
        if has_few_in_a_group(problem):
            return _across_groups(problem)
        return _nhwc(problem) if problem.layout == "nhwc_hwcf" else _nchw(problem)
    raise TypeError(f"no iteration space for {type(problem).__name__}")


FEW_CHANNELS = 8
FEW_TAPS = 128
FEW_PRODUCTS = 256
"""Channels of a group (of the image, of the result), taps of the filter, and products of an output,
up to which groups are computed together: there is code for every product of every output of a tile,
and more of it where tiles of a line read padding in different ways."""


def has_few_in_a_group(problem: Conv2d) -> bool:
    """Whether columns span the groups: one product per group would leave most lanes idle."""
    inputs, outputs = problem.ci // problem.groups, problem.co // problem.groups
    taps, has_groups = problem.kh * problem.kw, problem.groups > 1
    is_short = taps <= FEW_TAPS and taps * inputs <= FEW_PRODUCTS
    return has_groups and max(inputs, outputs) <= FEW_CHANNELS and is_short


def _across_groups(problem: Conv2d) -> IterationSpace:
    """All channels of the result as columns, or as rows where each is a plane."""
    images, down, across = ("n", problem.n), ("oh", problem.oh), ("ow", problem.ow)
    channels, reduced = ("co", problem.co), ("ci", problem.ci // problem.groups)
    taps = problem.kh * problem.kw
    if problem.has_channels_first:
        extents = (images, channels, down, across, reduced)
        rows, col, image = ("n", "co", "oh"), "ow", "B"
    else:
        extents = (images, down, across, channels, reduced)
        rows, col, image = ("n", "oh", "ow"), "co", "A"
    group = problem.co // problem.groups
    return IterationSpace(extents, rows, col, stream="ci", taps=taps, image=image, group=group)


def _nhwc(problem: Conv2d) -> IterationSpace:
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
        lead=tuple(name for name, _ in lead),
        image="A",
    )


def _nchw(problem: Conv2d) -> IterationSpace:
    """One image's patches at a time; pixels that lie as B's rows do need no gathering."""
    groups, images, taps = problem.groups, problem.n, problem.kh * problem.kw
    lead = tuple(pair for pair in (("g", groups), ("n", images)) if pair[1] > 1)
    return IterationSpace(
        extents=(
            *lead,
            ("co", problem.co // groups),
            ("p", problem.oh * problem.ow),
            ("k", problem.ci // groups * taps),
        ),
        row_dims=("co",),
        col="p",
        stream="k",
        taps=1,
        lead=tuple(name for name, _ in lead),
        image="B",
        patches=taps > 1 or problem.stride > 1 or problem.pad > 0,
    )


def is_packed_by_rows(problem: Problem) -> bool:
    """Whether packing B, in the nest, reads rows of a matrix from one end to the other."""
    gathers = iteration_space(problem).patches or problem.has_transposed_b
    return not gathers and not is_packed_ahead(problem, "B")


def is_packed_ahead(problem: Problem, role: str, space: IterationSpace | None = None) -> bool:
    """Whether packing a factor is no part of a run: constant weights that play B.

    Args:
        problem: what is computed.
        role: A or B.
        space: the dims of a schedule, where its steps changed those of the problem.
    """
    space = iteration_space(problem) if space is None else space
    weights = "A" if space.image == "B" else "B"
    return not space.spans_groups and role == "B" == weights and problem.has_constant_weights
