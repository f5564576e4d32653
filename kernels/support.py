"""What a problem needs of a machine; light, so that a service can ask."""

from math import prod

from kernels.problem import Conv2d, Problem
from kernels.problem.iteration import iteration_space


def working_bytes(problem: Problem) -> int:
    """Bytes to hold the operands and all that the reference computes from them in float64.

    The image of a convolution is padded, A and B have a second copy of magnitudes, and
    the result exists as value, bound, product of one tap, and what is being compared.
    Scripts gather the patches of an nchw image ahead, all of them.
    """
    copies = {"A": 4, "B": 2, "C": 5, "bias": 1}
    total = problem.bytes
    for name, shape in problem.operand_shapes.items():
        total += copies[name] * 8 * prod(shape)
    return total + patch_bytes(problem)


def patch_bytes(problem: Problem) -> int:
    """Bytes of all patches of an image that scripts gather: every tap's view of it."""
    if not isinstance(problem, Conv2d) or not iteration_space(problem).patches:
        return 0
    taps = problem.ci * problem.kh * problem.kw
    return problem.n * taps * problem.oh * problem.ow * problem.element.bytes
