"""What a problem needs of a machine; light, so that a service can ask."""

from math import prod

from kernels.problem import Problem


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
