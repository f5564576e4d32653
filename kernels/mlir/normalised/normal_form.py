"""The form that a script gives an op of a module: the loops that a schedule speaks of, in order.

Loops of one step are dropped. Of several loops that play one part, such as two rows, one is the
schedule's, and the others run around it: rows and columns outside of its tiles, reductions inside
of the register tile. Operands stay as they lie where every row, column and element of the
reduction that the schedule speaks of lies as its problem says. Else all of them are packed to one
form, `[those visited alone, rows or columns, reduction]`, as upstream's `pack_greedily` does it with
tiles: whole operands here, so that the schedule's own packs find what they expect.
"""

from dataclasses import dataclass

from kernels.errors import UnsupportedError
from kernels.mlir.frontend.contraction import contraction_roles
from kernels.mlir.frontend.lone import LoneOp
from kernels.mlir.frontend.nest import Dims, Nest, Operand
from kernels.mlir.payload.form import Form
from kernels.problem import Matmul, parse_problem
from kernels.problem.iteration import IterationSpace
from kernels.schedule import Schedule


@dataclass(frozen=True)
class NormalForm:
    """An op of a module as a schedule sees it.

    Attributes:
        problem: that the op is by itself.
        form: the op once the script has put it in order.
        interchange: for each loop the op's loop, those of one step left out.
        has_units: whether the op has loops or axes of one step, which go first.
        around: the dims that the problem has not, outermost first.
        turned: for each input that is packed with the reduction before its rows or columns, its
            number and the order of what is packed.
        is_packed: whether the operands are packed.
        inputs: the dims of A and B in the order in which the schedule's steps find them.
    """

    problem: Matmul
    form: Form
    interchange: Dims
    has_units: bool
    around: tuple[str, ...]
    turned: tuple[tuple[int, Dims], ...]
    is_packed: bool
    inputs: tuple[tuple[str, ...], tuple[str, ...]]


@dataclass(frozen=True)
class _Parts:
    """The loops of a product by what they do, outermost first; the last one is the schedule's."""

    lead: Dims
    rows: Dims
    cols: Dims
    sums: Dims

    @property
    def alone(self) -> Dims:
        """The loops that both B and C have, and that are visited one step at a time."""
        return (*self.lead, *self.cols[:-1])

    @property
    def mains(self) -> Dims:
        """The loops that the schedule tiles: a row, a column, the reduction."""
        return (*self.rows[-1:], *self.cols[-1:], *self.sums[-1:])

    @property
    def order(self) -> Dims:
        """All of them, those of the schedule innermost."""
        return (*self.alone, *self.rows[:-1], *self.sums[:-1], *self.mains)

    def within(self, own: Dims, *, reduction_first: bool = False) -> Dims:
        """The loops of an input in the order in which it is packed; `own` are its rows or columns."""
        if not reduction_first:
            return tuple(dim for dim in self.order if dim in (*self.lead, *own, *self.sums))
        outer = tuple(dim for dim in self.within(own) if dim not in self.mains)
        return (*outer, *self.sums[-1:], *own[-1:])

    @property
    def result(self) -> Dims:
        """The loops of the result in the order in which it is packed."""
        return tuple(dim for dim in self.order if dim not in self.sums)

    def names(self) -> dict[int, str]:
        """The dims' names: the problem's, and numbered ones of the loops around."""
        return {
            **_named("batch", self.lead, has_main=len(self.lead) == 1),
            **_named("n", self.cols),
            **_named("m", self.rows),
            **_named("k", self.sums),
        }


def normal_form(lone: LoneOp, schedule: Schedule) -> NormalForm:
    """The form that an op takes for a schedule of its problem.

    Raises:
        UnsupportedError: no script can give it one; the message says why.
    """
    problem, nest = parse_problem(lone.found.problem), lone.nest
    if not isinstance(problem, Matmul):
        raise UnsupportedError(
            f"{lone.found.where}: a convolution has no script on the op itself; the script of "
            f"{problem} is of its own op",
            "place",
        )
    numbers = (1, 0) if lone.found.is_swapped else (0, 1)
    inputs = nest.a, nest.b
    a, b = (inputs[number] for number in numbers)
    parts = _parts(nest, lone, Nest(nest.extents, a, b, nest.c))
    is_split = schedule.lanes > 1
    turns = (
        problem.transpose_a and problem.m > 1 and not is_split,
        not problem.transpose_b and problem.n > 1 and not is_split,
    )
    packed = (
        parts.within(parts.rows, reduction_first=turns[0]),
        parts.within(parts.cols, reduction_first=turns[1]),
        parts.result,
    )
    lies = tuple(_long(nest, operand) for operand in (a, b, nest.c))
    is_packed = not all(_lies_so(*both, parts.mains) for both in zip(lies, packed, strict=True))
    if is_packed:
        lies = packed
    names = parts.names()
    form = _form(lone, parts, names, lies, numbers)
    known = {"batch", "m", "n", "k"}
    around = (*parts.alone, *parts.rows[:-1], *parts.sums[:-1])
    kept = sorted(parts.order)
    return NormalForm(
        problem,
        form,
        tuple(kept.index(dim) for dim in parts.order),
        _has_units(nest),
        tuple(names[dim] for dim in around if names[dim] not in known),
        _turned(parts, turns, numbers) if is_packed else (),
        is_packed,
        (tuple(names[dim] for dim in lies[0]), tuple(names[dim] for dim in lies[1])),
    )


def _parts(nest: Nest, lone: LoneOp, seen: Nest) -> _Parts:
    """The loops by what they do, in the order of the problem's operands."""
    lead, rows, cols, sums = contraction_roles(seen)
    in_a, in_c = (
        tuple(operand.axes[i][0][0] for i in how.axes if operand.axes[i])
        for operand, how in ((seen.a, lone.found.a), (seen.c, lone.found.c))
    )
    return _Parts(
        _in_order(lead, in_c),
        _largest_last(nest, _in_order(rows, in_c)),
        _in_order(cols, in_c),
        _largest_last(nest, _in_order(sums, in_a)),
    )


def _in_order(dims: frozenset[int], order: Dims) -> Dims:
    return tuple(dim for dim in order if dim in dims)


def _largest_last(nest: Nest, dims: Dims) -> Dims:
    """The dims with the longest one at the end; of equals the last."""
    if not dims:
        return dims
    main = max(dims, key=lambda dim: (nest.extents[dim], dims.index(dim)))
    return (*(dim for dim in dims if dim != main), main)


def _lies_so(lies: Dims, packed: Dims, mains: Dims) -> bool:
    """Whether the loops of the schedule are innermost of an operand, and lie as if packed."""
    count = sum(dim in mains for dim in packed)
    return lies[len(lies) - count :] == packed[len(packed) - count :]


def _turned(
    parts: _Parts, turns: tuple[bool, bool], numbers: tuple[int, int]
) -> tuple[tuple[int, Dims], ...]:
    """The inputs that are packed in another order than that of the loops."""
    found = []
    for number, own, turn in zip(numbers, (parts.rows, parts.cols), turns, strict=True):
        if turn:
            ordered, wanted = parts.within(own), parts.within(own, reduction_first=True)
            found.append((number, tuple(ordered.index(dim) for dim in wanted)))
    return tuple(found)


def _has_units(nest: Nest) -> bool:
    return 1 in nest.extents or any(1 in one.shape for one in (nest.a, nest.b, nest.c))


def _long(nest: Nest, operand: Operand) -> Dims:
    """The dims of an operand's axes in order, without those of one step."""
    return tuple(axis[0][0] for axis in operand.axes if axis and nest.has_length(axis[0][0]))


def _named(name: str, dims: Dims, *, has_main: bool = True) -> dict[int, str]:
    """Names of the dims of a part: the last one has that of the problem, if it is to."""
    outer = dims[:-1] if has_main else dims
    names = {dim: f"{name}{i}" for i, dim in enumerate(outer)}
    return names | ({dims[-1]: name} if has_main and dims else {})


def _space(nest: Nest, parts: _Parts, names: dict[int, str]) -> IterationSpace:
    """The dims by their parts: visited alone, rows, the column, the reduction."""
    extents = {names[dim]: nest.extents[dim] for dim in parts.order}
    for name in ("m", "n", "k"):
        extents.setdefault(name, 1)
    return IterationSpace(
        extents=tuple(extents.items()),
        row_dims=tuple(names[dim] for dim in parts.rows) or ("m",),
        col="n",
        stream="k",
        taps=1,
        lead=tuple(names[dim] for dim in parts.alone),
    )


def _form(
    lone: LoneOp,
    parts: _Parts,
    names: dict[int, str],
    lies: tuple[Dims, ...],
    numbers: tuple[int, int],
) -> Form:
    element = parse_problem(lone.found.problem).element
    space = _space(lone.nest, parts, names)
    a, b, c = (tuple(names[dim] for dim in one) for one in lies)
    kind = "f" if element.is_float else "i"
    tap_extents = {names[dim]: lone.nest.extents[dim] for dim in parts.sums[:-1]}
    return Form(
        space=space,
        op=lone.found.op,
        dims=tuple(names[dim] for dim in parts.order),
        result_dims=c,
        bias_dims=(),
        has_epilogue=False,
        tap_extents=tap_extents,
        panels_first=_panels_first(b, space, tuple(tap_extents)),
        copied_dims=max(len(a) - 1, 0),
        contiguous=a[-1] if a else "",
        contiguous_b=b[-1] if b else "",
        body=(f"arith.mul{kind}", f"arith.add{kind}"),
        zero=f"{'0.0' if element.is_float else '0'} : {element.name}",
        widens=element.name != element.accumulator,
        accumulator_bytes=element.accumulator_bytes,
        rows_apart=False,
        pads_image=False,
        gathers_lines=False,
        pads_lines=False,
        image_operand=0,
        group_extents={"f": 1},
        starts_from_fill=lone.starts_from_fill,
        multiplies_columns_first=lone.first_factor == numbers[1],
        operands=numbers,
    )


def _panels_first(
    b: tuple[str, ...], space: IterationSpace, taps: tuple[str, ...]
) -> tuple[int, ...]:
    """Where packed B's dims come from: those visited one at a time, panels, taps, depth."""
    wanted = (*space.lead, space.col, *taps, space.stream)
    return tuple(b.index(dim) for dim in wanted if dim in b)
