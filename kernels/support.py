"""Which problems have a script, and what they take; light, so that a service can ask."""

from math import prod

from kernels.errors import UnsupportedError
from kernels.problem import Conv2d, Matmul, Problem, weights_are_constant

SCRIPTED_TYPES = ("f32", "f64", "i32")


def check_scripted(problem: Problem) -> None:
    """Raise UnsupportedError, naming the key, for problems that have no transform script."""
    _refuse(problem, "dtype", "has no script", problem.element.name not in SCRIPTED_TYPES)
    if isinstance(problem, Matmul):
        _refuse(problem, "transpose_a", "has no script", problem.transpose_a)
        _refuse(problem, "transpose_b", "has no script", problem.transpose_b)
    if isinstance(problem, Conv2d):
        _refuse(problem, "layout", "has no script", problem.layout != "nhwc_hwcf")
        _refuse(problem, "dtype", "has no script for conv2d", problem.dtype != "f32")
        _refuse(problem, "groups", "has no script", problem.groups != 1)
    _refuse(problem, "weights", "has no script", weights_are_constant(problem))


def working_bytes(problem: Problem) -> int:
    """Bytes to hold the operands and all that the reference computes from them in float64.

    The image of a convolution is padded, A and B have a second copy of magnitudes, and
    the result exists as value, bound, product of one tap, and what is being compared.
    """
    copies = {"A": 4, "B": 2, "C": 5, "bias": 1}
    total = problem.bytes
    for name, shape in problem.operand_shapes.items():
        total += copies[name] * 8 * prod(shape)
    return total


def _refuse(problem: Problem, field: str, why: str, is_wrong: bool) -> None:
    if is_wrong:
        raise UnsupportedError(f"{problem}: {field}={getattr(problem, field)} {why} yet", field)
