"""The form that a script gives a user's op: the loops that a schedule speaks of, by their names.

Loops of one step are dropped, and the others come in one order: those that are visited one at a
time, rows, columns, the reduction. Operands stay as they lie; what a schedule packs is put in
order by the pack. Where several loops play one part, one of them is the schedule's and the others
run around it: rows and columns outside of its tiles, reductions inside of the register tile.
"""

from dataclasses import dataclass

from kernels.errors import UnsupportedError
from kernels.mlir.frontend.contraction import contraction_roles
from kernels.mlir.frontend.nest import Nest, Operand
from kernels.mlir.frontend.own import OwnOp
from kernels.mlir.payload.form import Form
from kernels.problem import Problem, parse_problem
from kernels.problem.iteration import IterationSpace

Names = dict[int, str]


@dataclass(frozen=True)
class NormalForm:
    """A user's op as a schedule sees it.

    Attributes:
        problem: that the op is by itself.
        form: the op once the script has put it in order.
        interchange: for each loop of the form the op's loop, those of one step left out.
        has_units: whether the op has loops or axes of one step, which go first.
        around: the dims that the problem has not, outermost first.
    """

    problem: Problem
    form: Form
    interchange: tuple[int, ...]
    has_units: bool
    around: tuple[str, ...]


def normal_form(own: OwnOp) -> NormalForm:
    """The form of an op.

    Raises:
        UnsupportedError: no script can give it one; the message says why.
    """
    if own.nest.has_windows:
        raise UnsupportedError("windows", "place")
    return _product(own)


def _product(own: OwnOp) -> NormalForm:
    problem, nest = parse_problem(own.found.problem), own.nest
    numbers = (1, 0) if own.found.is_swapped else (0, 1)
    a, b = ((nest.a, nest.b)[number] for number in numbers)
    roles = contraction_roles(Nest(nest.extents, a, b, nest.c))
    leads, rows, cols, sums = (
        _ordered(nest, one, operand)
        for one, operand in zip(roles, (nest.c, nest.c, nest.c, a), strict=True)
    )
    last = _long(nest, nest.c)[-1:]
    if cols and last != cols[-1:]:
        raise UnsupportedError(
            f"{own.found.where}: neighbours of the result lie along a loop that is no column of "
            "it, and no transform of MLIR writes vectors there; give the op a result whose last "
            "axis is a row or a column of the product",
            "place",
        )
    rows, sums = _largest_last(nest, rows), _largest_last(nest, sums)
    names = {
        **_named("batch", leads, has_main=len(leads) == 1),
        **_named("n", cols),
        **_named("m", rows),
        **_named("k", sums),
    }
    lead = (*leads, *cols[:-1])
    order = (*lead, *rows, *cols[-1:], *sums)
    space = _space(nest, names, (lead, rows, cols[-1:], sums))
    form = _form(own, problem, names, order, space, (a, b), numbers, sums[:-1])
    known = {"batch", "m", "n", "k"}
    around = tuple(names[dim] for dim in (*lead, *rows[:-1], *sums[:-1]) if names[dim] not in known)
    has_units = len(order) < len(nest.extents) or any(
        1 in operand.shape for operand in (nest.a, nest.b, nest.c)
    )
    kept = [dim for dim in range(len(nest.extents)) if dim in names]
    return NormalForm(
        problem, form, tuple(kept.index(dim) for dim in order), has_units, around
    )


def _ordered(nest: Nest, dims: frozenset[int], operand: Operand) -> tuple[int, ...]:
    """Dims in the order in which an operand has them."""
    return tuple(dim for dim in _long(nest, operand) if dim in dims)


def _long(nest: Nest, operand: Operand) -> tuple[int, ...]:
    """The dims of an operand's axes in order, without those of one step."""
    return tuple(axis[0][0] for axis in operand.axes if axis and nest.has_length(axis[0][0]))


def _largest_last(nest: Nest, dims: tuple[int, ...]) -> tuple[int, ...]:
    """The dims with the longest one at the end; of equals the last."""
    if not dims:
        return dims
    main = max(dims, key=lambda dim: (nest.extents[dim], dims.index(dim)))
    return (*(dim for dim in dims if dim != main), main)


def _named(name: str, dims: tuple[int, ...], *, has_main: bool = True) -> Names:
    """Names of the dims of a part: the last one has that of the problem, if it is to."""
    outer = dims[:-1] if has_main else dims
    names = {dim: f"{name}{i}" for i, dim in enumerate(outer)}
    return names | ({dims[-1]: name} if has_main and dims else {})


def _space(
    nest: Nest, names: Names, parts: tuple[tuple[int, ...], ...]
) -> IterationSpace:
    """The dims by their parts: visited alone, rows, the column, the reduction."""
    lead, rows, cols, sums = parts
    extents = {names[dim]: nest.extents[dim] for dim in (*lead, *rows, *cols, *sums[-1:])}
    for name in ("m", "n", "k"):
        extents.setdefault(name, 1)
    return IterationSpace(
        extents=tuple(extents.items()),
        row_dims=tuple(names[dim] for dim in rows) or ("m",),
        col="n",
        stream="k",
        taps=1,
        lead=tuple(names[dim] for dim in lead),
    )


def _form(
    own: OwnOp,
    problem: Problem,
    names: Names,
    order: tuple[int, ...],
    space: IterationSpace,
    inputs: tuple[Operand, Operand],
    numbers: tuple[int, int],
    taps: tuple[int, ...],
) -> Form:
    nest, element = own.nest, problem.element
    a, b, c = (
        tuple(names[dim] for dim in _long(nest, operand)) for operand in (*inputs, nest.c)
    )
    kind = "f" if element.is_float else "i"
    tap_extents = {names[dim]: nest.extents[dim] for dim in taps}
    return Form(
        space=space,
        op=own.found.op,
        dims=tuple(names[dim] for dim in order),
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
        starts_from_fill=own.starts_from_fill,
        operands=numbers,
    )


def _panels_first(
    b: tuple[str, ...], space: IterationSpace, taps: tuple[str, ...]
) -> tuple[int, ...]:
    """Where packed B's dims come from: those visited alone, panels, taps, depth."""
    wanted = (*space.lead, space.col, *taps, space.stream)
    return tuple(b.index(dim) for dim in wanted if dim in b)
