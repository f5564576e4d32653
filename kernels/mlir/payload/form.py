"""How MLIR's ops arrange the dims that schedules speak of."""

from dataclasses import dataclass, replace

from tilewise.kernels.mlir.payload.contraction import contraction, gathers_patches
from tilewise.kernels.mlir.payload.epilogue import bias_dims, has_epilogue
from tilewise.kernels.mlir.payload.split_lines import (
    TAPS,
    SplitLines,
    pads_split_lines,
    pads_taps,
    splits_lines,
)
from tilewise.kernels.mlir.payload.spread import spreads_channels
from tilewise.kernels.problem import Problem
from tilewise.kernels.problem.iteration import IterationSpace, iteration_space


@dataclass(frozen=True)
class Form:
    """The linalg op of a problem, and where each dim sits in its iteration domain.

    Attributes:
        space: the dims and their roles.
        op: the op in the payload.
        dims: its iteration dims in MLIR's order; after B is packed, `lane` follows them.
        result_dims: those of its result, and of the epilogue.
        bias_dims: those of the bias; none without one.
        has_epilogue: whether an elementwise op follows the contraction.
        tap_extents: the reduction dims that are not streamed (kh, kw), with their extents.
        panels_first: the outer permutation that puts the panels of packed B first.
        copied_dims: dims of A before its last one.
        contiguous: the dim whose neighbours are neighbours in A.
        contiguous_b: the same for B.
        rows_apart: whether something lies in A between neighbouring rows of the register
            tile: pixels that a stride leaves out, or the channels of other groups.
        gathers_lines: whether the op reads an image whose lines are gathered first, for each column
            of taps the pixels that its outputs read.
        pads_lines: whether those lines, or pixels that are spread, are of an image that is padded
            first.
        splits_lines: whether the op reads an image whose lines are parted first.
        pads_parts: whether zeros lie around those parts.
        pads_taps: whether zeros lie around the taps of a line of the filter.
        pads_image: whether the op reads an image that is padded with zeros first.
        image_operand: the op's operand that is the image; 0 for a matmul.
        group_extents: the dim `f` of the channels of a group's result, which no schedule speaks of.
        starts_from_fill: whether C starts from zeros that a linalg.fill writes.
        operands: the op's operands that play A and B.
        multiplies_columns_first: whether the first factor in the op's body is B's.
        spreads_channels: whether the op reads what an op of its own spreads over the channels of
            groups.
        zero: the element type's zero as an attribute.
        widens: whether the body widens A and B to the accumulator's type.
        accumulator_bytes: size of an element of C.
        body: the multiplication and the addition of the op's body.
    """

    space: IterationSpace
    op: str
    dims: tuple[str, ...]
    result_dims: tuple[str, ...]
    bias_dims: tuple[str, ...]
    has_epilogue: bool
    tap_extents: dict[str, int]
    panels_first: tuple[int, ...]
    copied_dims: int
    contiguous: str
    contiguous_b: str
    body: tuple[str, str]
    zero: str
    widens: bool
    accumulator_bytes: int
    rows_apart: bool
    image_operand: int
    group_extents: dict[str, int]
    starts_from_fill: bool
    pads_image: bool = False
    gathers_lines: bool = False
    pads_lines: bool = False
    splits_lines: bool = False
    pads_parts: bool = False
    pads_taps: bool = False
    operands: tuple[int, int] = (0, 1)
    multiplies_columns_first: bool = False
    spreads_channels: bool = False

    @property
    def moving_dims(self) -> frozenset[str]:
        """The dims that move a convolution's image, or a matmul's A."""
        return self.space.operand_dims[self.space.image or "A"]

    @property
    def line_sizes(self) -> list[int]:
        """Tile sizes of a copy of the image: a line of a plane, or a pixel's channels."""
        inputs = self.space.extent(self.space.stream) > 1
        return [1, 1, *([1] if inputs else []), 1] if self.space.image == "B" else [1, 1, 1]

    @property
    def transposes_rows(self) -> bool:
        """Whether neighbours in A are rows of the result, not elements of the reduction."""
        return self.contiguous == self.space.row

    @property
    def transposes_columns(self) -> bool:
        """Whether neighbours in B are elements of the reduction, not columns of the result."""
        return self.contiguous_b == self.space.stream

    @property
    def taps(self) -> tuple[str, ...]:
        """The reduction dims that are not streamed, outermost first."""
        return tuple(self.tap_extents)

    @property
    def reductions(self) -> tuple[str, ...]:
        """The reduction dims, outermost first."""
        return (*self.taps, self.space.stream)


def form(problem: Problem) -> Form:
    """The form of `problem`."""
    space, element, op = _script_space(problem), problem.element, contraction(problem)
    kind = "f" if element.is_float else "i"
    splits, spreads = splits_lines(problem), spreads_channels(problem)
    gathers = _gathers_lines(problem, space)
    pads = problem.pad > 0 and not _may_copy_nothing(problem)
    return Form(
        space=space,
        op=op.op,
        dims=op.dims,
        result_dims=op.result_dims,
        bias_dims=bias_dims(problem, op),
        has_epilogue=has_epilogue(problem),
        tap_extents=_tap_extents(problem, space),
        panels_first=_panels_first(space, op.maps[1].split(", ")),
        copied_dims=len(op.shapes[0]) - 1,
        contiguous=op.maps[0].rpartition(", ")[2],
        contiguous_b=op.maps[1].rpartition(", ")[2],
        body=(f"arith.mul{kind}", f"arith.add{kind}"),
        zero=f"{'0.0' if element.is_float else '0'} : {element.name}",
        widens=element.name != element.accumulator,
        accumulator_bytes=element.accumulator_bytes,
        rows_apart=space.image == "A" and (problem.stride > 1 or problem.groups > 1),
        pads_image=_pads_image(problem, space),
        gathers_lines=gathers,
        pads_lines=pads and (gathers or spreads),
        splits_lines=splits,
        pads_parts=splits and pads_split_lines(problem),
        pads_taps=splits and pads_taps(problem),
        image_operand=int(space.image == "B"),
        group_extents={"f": iteration_space(problem).group or 1},
        starts_from_fill=not problem.accumulates,
        spreads_channels=spreads,
    )


def _script_space(problem: Problem) -> IterationSpace:
    """The dims that a script's schedule speaks of: those of the problem, but `co` counts groups.

    Where channels are spread over lanes, it counts them, as the schedule does.
    """
    space = iteration_space(problem)
    if not space.spans_groups or spreads_channels(problem):
        return space
    extents = tuple((d, e // space.group if d == "co" else e) for d, e in space.extents)
    return replace(space, extents=extents, group=1)


def _tap_extents(problem: Problem, space: IterationSpace) -> dict[str, int]:
    """The filter's rows and columns, where they are dims of their own."""
    if not (space.image == "A" or space.spans_groups):
        return {}
    kh, kw = problem.window
    if splits_lines(problem):
        split = SplitLines.of(problem)
        return {"kh": kh, **dict(zip(TAPS, (split.turns, split.stride), strict=True))}
    return {"kh": kh, "kw": kw}


def _gathers_lines(problem: Problem, space: IterationSpace) -> bool:
    """Whether pixels of a line that vectors read are apart, and of one channel of a group."""
    return space.spans_groups and gathers_patches(problem) and space.extent(space.stream) == 1


def _pads_image(problem: Problem, space: IterationSpace) -> bool:
    """Whether there is padding, and nothing but a slice between it and the op."""
    if not problem.pad:
        return False
    if space.spans_groups:
        moves = (spreads_channels, splits_lines, gathers_patches, _may_copy_nothing)
        return not any(moved(problem) for moved in moves)
    return space.image == "A" and problem.groups == 1


def _may_copy_nothing(problem: Problem) -> bool:
    """Whether a script would copy pixels of a tile all of which may lie beside the image."""
    copies = problem.has_channels_first or spreads_channels(problem)
    reach = problem.dilation * (min(problem.window) - 1) + 1
    return (copies or problem.window == (1, 1)) and reach <= problem.pad


def _panels_first(space: IterationSpace, order: list[str]) -> tuple[int, ...]:
    """Where packed B's dims come from: those visited one at a time, panels, taps, depth."""
    if space.spans_groups:
        return ()  # nothing is packed
    lead = [dim for dim in order if dim in space.lead]
    rest = [dim for dim in order if dim not in (*lead, space.col)]
    return tuple(order.index(dim) for dim in (*lead, space.col, *rest))
