"""Blocks of stored operands as NumPy arrays: what accesses mean."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewise.kernels.nest.access import Axis, Operand

Array = np.ndarray[Any, Any]
Indices = Mapping[str, Array]
"""For each dim, the positions along it that a block has."""


def positions(axis: Axis, at: Indices, order: tuple[str, ...]) -> Array:
    """Return the positions of a block along a stored axis, with an axis for each dim of `order`."""
    out = np.array(axis.offset).reshape([1] * len(order))
    for term in axis.terms:
        value = at[term.dim] // term.div
        value = value % term.mod if term.mod else value
        shape = [-1 if dim == term.dim else 1 for dim in order]
        out = out + (term.scale * value).reshape(shape)
    return out


def read(operand: Operand, stored: Array, at: Indices, order: tuple[str, ...]) -> Array:
    """Return the elements of a block, an axis for each dim of `order`; zero outside."""
    where = [positions(axis, at, order) for axis in operand.axes]
    inside: Any = True
    for axis, places in zip(operand.axes, where, strict=True):
        inside = inside & (places >= 0) & (places < axis.size)
    clipped = tuple(
        np.clip(places, 0, axis.size - 1) for axis, places in zip(operand.axes, where, strict=True)
    )
    found = np.where(inside, stored.reshape(operand.shape)[clipped], 0)
    return np.broadcast_to(found, [len(at[d]) if d in operand.dims else 1 for d in order])


def places(operand: Operand, at: Indices, order: tuple[str, ...]) -> tuple[Array, ...]:
    """Return index arrays of a block, to read or write it in place."""
    where = [positions(axis, at, order) for axis in operand.axes]
    return tuple(np.broadcast_arrays(*where))
