"""How a user's op takes the operands of the problem that it is."""

import numpy as np

from tilewise.kernels.mlir.frontend.graph import Arrangement, Occurrence
from tilewise.kernels.mlir.proof.child.stages import Passing
from tilewise.kernels.oracle.operands import Array, empty_aligned

Shape = tuple[int, ...]


def passing_of(found: Occurrence, shapes: tuple[Shape, Shape, Shape]) -> Passing:
    """What turns a problem's operands into an op's, and its result into C.

    Args:
        found: the op as a problem.
        shapes: of the op's two inputs and of its result.
    """
    inputs = ("B", "A") if found.is_swapped else ("A", "B")
    names = (*inputs, "C")
    arrangements = {"A": found.a, "B": found.b, "C": found.c}
    of_name = dict(zip(names, shapes, strict=True))

    def argument(name: str, array: Array) -> Array:
        return _as_the_op_has_it(array, arrangements[name], of_name[name])

    def result(array: Array) -> Array:
        return np.ascontiguousarray(array.transpose(found.c.axes)).reshape(found.c.shape)

    return Passing(lambda _problem: names, argument, result)


def _as_the_op_has_it(array: Array, how: Arrangement, shape: Shape) -> Array:
    """The value of which `value.transpose(axes).reshape(...)` is an array, in memory of its own."""
    ordered = array.reshape([shape[axis] for axis in how.axes])
    value = empty_aligned(shape, array.dtype.type)
    value[...] = ordered.transpose(np.argsort(how.axes))
    return value
