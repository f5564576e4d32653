"""Nests that are matmuls: who plays m, n, k and batch, and which operands have to be transposed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from tilewise.kernels.mlir.frontend.nest import (
    Dims,
    Layout,
    Nest,
    Operand,
    RefusedError,
    check_whole,
    effort,
    orders,
)


@dataclass(frozen=True)
class _Roles:
    """The dims of a contraction by what they do; a dim of one step has no role."""

    batch: frozenset[int]
    m: frozenset[int]
    n: frozenset[int]
    k: frozenset[int]


def is_contraction(nest: Nest) -> bool:
    """Whether a nest multiplies matrices at all, and not element by element.

    A sum over something that both inputs have, or an outer product.
    """
    in_a, in_b, in_c = nest.a.dims, nest.b.dims, nest.c.dims
    if in_a & in_b - in_c:
        return True
    return bool(in_a - in_b & in_c) and bool(in_b - in_a & in_c) and in_a | in_b == in_c


def matmul_layout(nest: Nest, costs: tuple[int, int, int] = (1, 1, 1)) -> Layout:
    """The matmul that a nest is, with as few elements moved as there may be.

    Args:
        nest: without windows.
        costs: of moving an element of A, B and C; 0 for a constant.

    Raises:
        RefusedError: it is none.
    """
    for name, operand in (("the first input", nest.a), ("the second input", nest.b),
                          ("the result", nest.c)):  # fmt: skip
        check_whole(nest, operand, name)
    roles = _roles(nest)
    found = [
        *_layouts(nest, roles, costs, is_swapped=False),
        *_layouts(nest, roles, costs, is_swapped=True),
    ]
    return min(found, key=_rank)


def contraction_roles(
    nest: Nest,
) -> tuple[frozenset[int], frozenset[int], frozenset[int], frozenset[int]]:
    """The loops of a contraction that are batch, m, n and k; those of one step are none.

    Raises:
        RefusedError: it is none.
    """
    roles = _roles(nest)
    return roles.batch, roles.m, roles.n, roles.k


def _rank(layout: Layout) -> tuple[int, bool, int]:
    flags = bool(layout.sizes["transpose_a"]) + bool(layout.sizes["transpose_b"])
    return layout.moved, layout.is_swapped, flags


def _long(nest: Nest, operand: Operand) -> frozenset[int]:
    return frozenset(dim for dim in operand.dims if nest.has_length(dim))


def _roles(nest: Nest) -> _Roles:
    in_a, in_b, in_c = (_long(nest, operand) for operand in (nest.a, nest.b, nest.c))
    if alone := (in_a ^ in_b) - in_c:
        which = "first" if alone & in_a else "second"
        raise RefusedError(f"sums the {which} input alone over an index that the other lacks")
    if in_c - in_a - in_b:
        raise RefusedError("repeats its result along an axis that neither input has")
    return _Roles(in_a & in_b & in_c, in_a - in_b, in_b - in_a, in_a & in_b - in_c)


def _layouts(
    nest: Nest, roles: _Roles, costs: tuple[int, int, int], *, is_swapped: bool
) -> Iterator[Layout]:
    """Every way to name the dims and to order them."""
    a, b = (nest.b, nest.a) if is_swapped else (nest.a, nest.b)
    rows, columns = (roles.n, roles.m) if is_swapped else (roles.m, roles.n)
    cost_a, cost_b = (costs[1], costs[0]) if is_swapped else (costs[0], costs[1])
    operands = ((a, cost_a), (b, cost_b), (nest.c, costs[2]))
    for batch, m, n, k in product(
        _orders(roles.batch, nest.c, a, b),
        _orders(rows, nest.c, a),
        _orders(columns, nest.c, b),
        _orders(roles.k, a, b),
    ):
        sizes = {name: nest.extent(dims) for name, dims in
                 (("batch", batch), ("m", m), ("n", n), ("k", k))}  # fmt: skip
        for transpose_a, transpose_b in (
            (False, False),
            (False, True),
            (True, False),
            (True, True),
        ):
            wanted = (
                (batch, k, m) if transpose_a else (batch, m, k),
                (batch, n, k) if transpose_b else (batch, k, n),
                (batch, m, n),
            )
            axes = tuple(
                _axes(operand, groups)
                for (operand, _), groups in zip(operands, wanted, strict=True)
            )
            yield Layout(
                {**sizes, "transpose_a": transpose_a, "transpose_b": transpose_b},
                (axes[0], axes[1], axes[2]),
                is_swapped,
                sum(effort(order, operand.shape, cost)
                    for (operand, cost), order in zip(operands, axes, strict=True)),
                frozenset(i for i, axis in enumerate(nest.c.axes) if _is_of(axis, n)),
            )  # fmt: skip


def _orders(dims: frozenset[int], *operands: Operand) -> tuple[Dims, ...]:
    return orders(
        *(tuple(dim for axis in operand.axes for dim, _ in axis if dim in dims)
          for operand in operands)
    )  # fmt: skip


def _is_of(axis: Sequence[tuple[int, int]], dims: Dims) -> bool:
    return bool(axis) and axis[0][0] in dims


def _axes(operand: Operand, groups: tuple[Dims, ...]) -> Dims:
    """The operand's axes in the order of groups of dims; those of one element come first."""
    of_dim = {axis[0][0]: i for i, axis in enumerate(operand.axes) if axis}
    order = tuple(of_dim[dim] for group in groups for dim in group)
    rest = tuple(i for i in range(len(operand.axes)) if i not in order)
    return (*rest, *order)
