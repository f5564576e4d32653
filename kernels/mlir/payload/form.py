"""How MLIR's ops arrange the dims of schedules."""

from dataclasses import dataclass, replace

from tilewise.kernels.mlir.payload.contraction import Contraction, contraction, gathers_patches
from tilewise.kernels.mlir.payload.factors import factor_type
from tilewise.kernels.mlir.payload.function import (
    bias_dims,
    channels_of,
    has_epilogue,
    writes_apart,
)
from tilewise.kernels.mlir.payload.images import (
    TAPS,
    pads_split_lines,
    pads_taps,
    splits_lines,
    spreads_channels,
)
from tilewise.kernels.nest import Loop, Nest, Node, Role
from tilewise.kernels.problem import DType, Problem

REGISTER_BYTES = 64  # of the widest vector registers; narrower ones halve such vectors


@dataclass(frozen=True)
class LinalgForm:
    """The linalg op of a loop nest, and the place of each dim in its iteration domain.

    Attributes:
        nest: the script's loops, over the op's dims.
        op: the op in the payload.
        dims: its iteration dims in MLIR's order; after B is packed, `lane` follows them.
        result_dims, bias_dims: those of its result and epilogue, and of a bias.
        has_epilogue: whether an elementwise op follows.
        writes_apart: whether that op has the sums among its inputs, and writes to C.
        more_inputs: those that follow the sums, and whether each moves along the columns: a tensor
            that is added, scales, a zero point.
        tap_extents: extents of the reduction dims that are not streamed taps.
        panels_first: the outer permutation that puts the panels of packed B first.
        copied_dims: dims of A before its last one.
        contiguous, contiguous_b: the innermost dims of A and B.
        rows_apart: whether rows of the register tile are not contiguous in A.
        image_operand: the op's operand that is the image; 0 for a matmul.
        group_extents: the dim `f` of the channels of a group's result, which no step can name.
        starts_from_fill: whether C starts from zeros of a linalg.fill.
        pads_image: whether the op reads an image that is padded first.
        gathers_lines: whether lines are gathered first, with the pixels for each column of taps.
        pads_lines: whether those lines, or spread pixels, are of an image that is padded first.
        splits_lines: whether lines of the image are split first.
        pads_parts, pads_taps: whether zeros surround the parts of split lines, or the taps of a
            line of the filter.
        operands: the op's operands that play A and B.
        multiplies_columns_first: whether the first factor in the op's body is B's.
        spreads_channels: whether an op spreads the image's channels over those of groups first.
        dynamic: the dims whose extents are known at run time alone.
    """

    nest: Nest
    op: str
    dims: tuple[str, ...]
    result_dims: tuple[str, ...]
    bias_dims: tuple[str, ...]
    has_epilogue: bool
    writes_apart: bool
    more_inputs: tuple[tuple[str, bool], ...]
    tap_extents: dict[str, int]
    panels_first: tuple[int, ...]
    copied_dims: int
    contiguous: str
    contiguous_b: str
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
    dynamic: frozenset[str] = frozenset()

    @property
    def element(self) -> DType:
        """The element type of the op's A and B."""
        return factor_type(self.nest.problem)

    @property
    def widens(self) -> bool:
        """Whether the op's body widens A and B to the accumulator's type."""
        return self.element.name != self.element.accumulator

    @property
    def body(self) -> tuple[str, str]:
        """The multiplication and the addition of the op's body."""
        kind = "f" if self.element.is_float else "i"
        return f"arith.mul{kind}", f"arith.add{kind}"

    @property
    def register_lanes(self) -> int:
        """The elements of C in a vector register."""
        return REGISTER_BYTES // self.element.accumulator_bytes

    @property
    def moving_dims(self) -> frozenset[str]:
        """The dims that move a convolution's image, or a matmul's A."""
        return self.nest.operand(self.nest.image or "A").dims

    @property
    def line_sizes(self) -> list[int]:
        """Tile sizes of a copy of the image: a line of a plane, or a pixel's channels."""
        inputs = self.nest.dim(self.nest.k).extent > 1
        return [1, 1, *([1] if inputs else []), 1] if self.nest.image == "B" else [1, 1, 1]

    @property
    def transposes_rows(self) -> bool:
        """Whether A is contiguous along rows of the result, not along the reduction."""
        return self.contiguous == self.nest.row

    @property
    def transposes_columns(self) -> bool:
        """Whether B is contiguous along the reduction, not along columns of the result."""
        return self.contiguous_b == self.nest.k

    @property
    def reductions(self) -> tuple[str, ...]:
        """The reduction dims, outermost first."""
        return (*self.tap_extents, self.nest.k)


def form(nest: Nest) -> LinalgForm:
    """Return the form of the payload of a nest's problem."""
    problem = nest.problem
    op = contraction(problem)
    splits, spreads = splits_lines(problem), spreads_channels(problem)
    has_one_input = nest.group > 0 and nest.dim(nest.k).extent == 1
    gathers = has_one_input and gathers_patches(problem)
    pads = problem.is_padded and not _may_copy_nothing(problem)
    taps = (*nest.named(Role.TAP), *TAPS)
    return LinalgForm(
        nest=_in_groups(nest),
        op=op.op,
        dims=op.dims,
        result_dims=op.result_dims,
        bias_dims=bias_dims(problem, op),
        has_epilogue=has_epilogue(problem),
        writes_apart=writes_apart(problem),
        more_inputs=_more_inputs(nest, op),
        tap_extents={dim: op.extents[dim] for dim in op.dims if dim in taps},
        panels_first=_panels_first(nest, op.maps[1]),
        copied_dims=len(op.shapes[0]) - 1,
        contiguous=op.maps[0][-1],
        contiguous_b=op.maps[1][-1],
        rows_apart=nest.image == "A" and (max(problem.strides) > 1 or problem.groups > 1),
        pads_image=_pads_image(nest),
        gathers_lines=gathers,
        pads_lines=pads and (gathers or spreads),
        splits_lines=splits,
        pads_parts=splits and pads_split_lines(problem),
        pads_taps=splits and pads_taps(problem),
        image_operand=int(nest.image == "B"),
        group_extents={"f": nest.group or 1},
        starts_from_fill=not problem.accumulates or writes_apart(problem),
        spreads_channels=spreads,
    )


def _more_inputs(nest: Nest, op: Contraction) -> tuple[tuple[str, bool], ...]:
    problem = nest.problem
    found = [("added", True)] if problem.add else []
    if problem.requant:
        along = problem.requant == "channel" and nest.col in channels_of(problem, op)
        found += [("scale", along), ("zero", False)]
    return tuple(found)


def _in_groups(nest: Nest) -> Nest:
    """Return the nest over the op's dims: `co` counts groups, unless channels are spread."""
    if nest.group <= 1 or spreads_channels(nest.problem):
        return nest
    dims = tuple(
        replace(dim, extent=dim.extent // nest.group) if dim.name == "co" else dim
        for dim in nest.dims
    )

    def shortened(node: Node) -> Node:
        if isinstance(node, Loop) and node.dim == "co":
            return replace(node, step=node.step // nest.group)
        return node

    return replace(nest, dims=dims, group=1).mapped(shortened)


def _pads_image(nest: Nest) -> bool:
    """Return whether there is padding, and only a slice between it and the op."""
    problem = nest.problem
    if not problem.is_padded:
        return False
    if nest.group:
        moves = (spreads_channels, splits_lines, gathers_patches, _may_copy_nothing)
        return not any(moved(problem) for moved in moves)
    return nest.image == "A" and problem.groups == 1


def _may_copy_nothing(problem: Problem) -> bool:
    """Return whether a script would copy pixels of a tile that may be only padding."""
    copies = problem.has_channels_first or spreads_channels(problem)
    sides = zip(problem.window, problem.dilations, problem.pads.low, problem.pads.high, strict=True)
    is_covered = any(by * (taps - 1) + 1 <= max(low, high) for taps, by, low, high in sides)
    return (copies or set(problem.window) == {1}) and is_covered


def _panels_first(nest: Nest, order: tuple[str, ...]) -> tuple[int, ...]:
    """Return the origin of packed B's dims: those visited alone, panels, taps, depth."""
    if nest.group:
        return ()  # nothing is packed
    lead = [dim for dim in order if dim in nest.named(Role.LEAD)]
    rest = [dim for dim in order if dim not in (*lead, nest.col)]
    return tuple(order.index(dim) for dim in (*lead, nest.col, *rest))
