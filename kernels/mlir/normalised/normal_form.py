"""The form that a script gives an op of a module: the loops that a schedule speaks of, in order.

Loops of one step are dropped. Of several loops that play one part, such as two rows, one is the
schedule's, and the others run around it: rows and columns outside of its tiles, reductions inside
of the register tile. Operands stay as they lie where what a schedule speaks of is innermost, in the
order that its problem has. Else they are packed to one form, in which it is: whole operands, by
`transform.structured.pack` with the extents as sizes, where upstream's `pack_greedily` has tiles. A
convolution's pixels and taps cannot be packed, but its channels are, so that every order becomes
[pixels, channels]; its schedule is that of the problem in this layout.
"""

from dataclasses import dataclass, replace

from kernels.errors import UnsupportedError
from kernels.mlir.frontend.lone import LoneOp
from kernels.mlir.frontend.nest import Dims, Nest, Operand
from kernels.mlir.normalised.parts import Parts, axes_of, convolution_parts, product_parts
from kernels.mlir.payload.form import Form
from kernels.problem import Conv2d, Problem, parse_problem
from kernels.problem.iteration import IterationSpace, has_few_in_a_group
from kernels.schedule import Schedule

PIXELS_FIRST = "nhwc_hwcf"


@dataclass(frozen=True)
class NormalForm:
    """An op of a module as a schedule sees it.

    Attributes:
        problem: whose schedules it takes.
        form: the op once the script has put it in order.
        interchange: for each loop the op's loop, those of one step left out; loops that are packed
            come behind the others afterwards.
        has_units: whether the op has loops or axes of one step, which go first.
        around: the dims that the problem has not, outermost first.
        packed_sizes: for each loop after the interchange its extent where it is packed, else 0;
            empty where nothing is packed.
        turned: for each input that is packed with the reduction before its rows or columns, its
            number and the order of what is packed.
        operands: the dims of A, B and C in the order in which the schedule's steps find them.
        moves: of A, B and C, as far as packing changes their order.
    """

    problem: Problem
    form: Form
    interchange: Dims
    has_units: bool
    around: tuple[str, ...]
    packed_sizes: tuple[int, ...]
    turned: tuple[tuple[int, Dims], ...]
    operands: tuple[tuple[str, ...], ...]
    moves: tuple["Move | None", ...] = (None, None, None)


@dataclass(frozen=True)
class Move:
    """The copy that packs an operand, or unpacks the result.

    Attributes:
        rank: of what is copied, without axes of one element.
        neighbours: elements that lie side by side before and after; 1 where the order of the
            innermost axis changes.
    """

    rank: int
    neighbours: int


def schedulable(lone: LoneOp) -> Problem:
    """The problem whose schedules an op takes: its own, with pixels before channels.

    Raises:
        UnsupportedError: there is none; the message says why.
    """
    problem = parse_problem(lone.found.problem)
    if not isinstance(problem, Conv2d):
        return problem
    pixels_first = replace(problem, layout=PIXELS_FIRST)
    if has_few_in_a_group(pixels_first):
        raise UnsupportedError(
            f"{lone.found.where}: groups of {problem.ci // problem.groups} channels have no script "
            f"on an op of a module; that of {problem} is for the op that it writes",
            "place",
        )
    return pixels_first


def normal_form(lone: LoneOp, schedule: Schedule) -> NormalForm:
    """The form that an op takes for a schedule of `schedulable(lone)`.

    Raises:
        UnsupportedError: no script can give it one; the message says why.
    """
    problem = schedulable(lone)
    numbers = (1, 0) if lone.found.is_swapped else (0, 1)
    inputs = lone.nest.a, lone.nest.b
    nest = Nest(lone.nest.extents, *(inputs[number] for number in numbers), lone.nest.c)
    if isinstance(problem, Conv2d):
        _check_direct(problem, schedule)
        parts = convolution_parts(nest, lone.found)
    else:
        parts = product_parts(nest, lone.found)
    turns = _turns(problem, parts, schedule)
    packed = (
        parts.within(parts.rows, reduction_first=turns[0]),
        parts.within(parts.cols, reduction_first=turns[1]),
        parts.result,
    )
    lies = tuple(axes_of(nest, operand) for operand in (nest.a, nest.b, nest.c))
    order, sizes, moves = parts.order, (), (None, None, None)
    if not all(_lies_so(*both, parts) for both in zip(lies, packed, strict=True)):
        sizes = tuple(0 if dim in parts.fixed else nest.extents[dim] for dim in parts.order)
        order = parts.packed_order
        before, lies = lies, tuple(
            (*(dim for dim in one if dim in parts.fixed),
             *(dim for dim in as_packed if dim not in parts.fixed))
            for one, as_packed in zip(lies, packed, strict=True)
        )  # fmt: skip
        moves = tuple(map(_move, (nest.a, nest.b, nest.c), before, lies))
    operands = tuple(parts.told(dims) for dims in lies)
    space = _space(nest, parts, problem)
    kept = sorted(parts.order)
    return NormalForm(
        problem,
        _form(lone, parts, space, operands, numbers, order),
        tuple(kept.index(dim) for dim in parts.order),
        1 in nest.extents or any(1 in one.shape for one in (nest.a, nest.b, nest.c)),
        tuple(name for name in parts.told(parts.around) if name not in _KNOWN),
        sizes,
        _turned(parts, turns, numbers) if sizes else (),
        operands,
        moves,
    )


_KNOWN = {"batch", "m", "n", "k", "g", "oh", "ow", "kh", "kw", "ci", "co"}


def _check_direct(problem: Conv2d, schedule: Schedule) -> None:
    if schedule.winograd is not None or schedule.lanes > 1:
        raise UnsupportedError(
            f"{problem}: {'a split reduction' if schedule.lanes > 1 else 'the step winograd'} has "
            "no script on a convolution of a module; give a schedule without it",
            "steps",
        )


def _turns(problem: Problem, parts: Parts, schedule: Schedule) -> tuple[bool, bool]:
    """Whether A and B have the reduction before their rows and columns; not as a split reads."""
    if schedule.lanes > 1:
        return False, False
    return (
        problem.has_transposed_a and bool(parts.rows),
        not problem.has_transposed_b and bool(parts.cols),
    )


def _lies_so(lies: Dims, packed: Dims, parts: Parts) -> bool:
    """Whether the loops of the schedule are innermost of an operand, and lie as if packed."""
    count = sum(dim in parts.mains for dim in packed)
    if parts.fixed and any(dim in parts.mains and dim in parts.rows for dim in packed):
        count -= 1  # a pixel that is no neighbour comes by itself
    return lies[len(lies) - count :] == packed[len(packed) - count :]


def _move(operand: Operand, before: Dims, packed: Dims) -> Move | None:
    """What packing an operand does, None where it changes nothing."""
    if before == packed:
        return None
    long = [size for size in operand.shape if size > 1]
    return Move(len(long), long[-1] if before[-1] == packed[-1] else 1)


def _turned(
    parts: Parts, turns: tuple[bool, bool], numbers: tuple[int, int]
) -> tuple[tuple[int, Dims], ...]:
    """The inputs that are packed in another order than that of the loops."""
    found = []
    for number, own, turn in zip(numbers, (parts.rows, parts.cols), turns, strict=True):
        ordered, wanted = (
            [dim for dim in parts.within(own, reduction_first=first) if dim not in parts.fixed]
            for first in (False, True)
        )
        if turn and ordered != wanted:
            found.append((number, tuple(ordered.index(dim) for dim in wanted)))
    return tuple(found)


def _space(nest: Nest, parts: Parts, problem: Problem) -> IterationSpace:
    """The dims by their parts: visited alone, rows, the column, the reduction."""
    is_product = not isinstance(problem, Conv2d)
    row, col, stream = ("m", "n", "k") if is_product else ("ow", "co", "ci")
    extents = {parts.names[dim]: nest.extents[dim] for dim in parts.order}
    for name in ((row, col, stream) if is_product else ("n", "oh", row, col, stream)):
        extents.setdefault(name, 1)
    rows = parts.told(parts.rows)
    if not is_product:
        rows = (*(name for name in ("n", "oh", row) if name not in rows), *rows)
    return IterationSpace(
        extents=tuple(extents.items()),
        row_dims=(*(name for name in rows if name != row), row),
        col=col,
        stream=stream,
        taps=1 if is_product else problem.kh * problem.kw,
        lead=parts.told(parts.alone),
        image="" if is_product else "A",
    )


def _form(
    lone: LoneOp,
    parts: Parts,
    space: IterationSpace,
    operands: tuple[tuple[str, ...], ...],
    numbers: tuple[int, int],
    order: Dims,
) -> Form:
    element = parse_problem(lone.found.problem).element
    a, b, c = operands
    kind = "f" if element.is_float else "i"
    taps = {parts.names[dim]: lone.nest.extents[dim] for dim in parts.taps}
    return Form(
        space=space,
        op=lone.found.op,
        dims=parts.told(order),
        result_dims=c,
        bias_dims=(),
        has_epilogue=False,
        tap_extents=taps,
        panels_first=_panels_first(b, space, tuple(taps)),
        copied_dims=max(len(a) - 1, 0),
        contiguous=a[-1] if a else "",
        contiguous_b=b[-1] if b else "",
        body=(f"arith.mul{kind}", f"arith.add{kind}"),
        zero=f"{'0.0' if element.is_float else '0'} : {element.name}",
        widens=element.name != element.accumulator,
        accumulator_bytes=element.accumulator_bytes,
        rows_apart=bool(parts.fixed) and _has_gaps(lone, (a, c), space),
        pads_image=False,
        gathers_lines=False,
        pads_lines=False,
        image_operand=numbers[0] if parts.fixed else 0,
        group_extents={"f": 1},
        starts_from_fill=lone.starts_from_fill,
        operands=numbers,
        multiplies_columns_first=lone.first_factor == numbers[1],
    )


def _has_gaps(
    lone: LoneOp, operands: tuple[tuple[str, ...], ...], space: IterationSpace
) -> bool:
    """Whether pixels that are neighbours in the image or the result have others between them."""
    problem = parse_problem(lone.found.problem)
    assert isinstance(problem, Conv2d)
    return problem.stride > 1 or any(space.row in names[:-2] for names in operands)


def _panels_first(
    b: tuple[str, ...], space: IterationSpace, taps: tuple[str, ...]
) -> tuple[int, ...]:
    """Where packed B's dims come from: those visited one at a time, panels, taps, depth."""
    wanted = (*space.lead, space.col, *taps, space.stream)
    return tuple(b.index(dim) for dim in wanted if dim in b)
