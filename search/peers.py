"""Other libraries on the same buffers, for the table beside our best."""

from collections.abc import Callable

import numpy as np

from kernels.problem import Matmul, Problem
from kernels.reference import Operands

Peer = Callable[[int], None]


def available_peers(problem: Problem, operands: Operands) -> dict[str, Peer]:
    """Peers that compute this very problem, by name; OpenBLAS is the one NumPy carries.

    BLAS has no integers and no convolution; a bias, an epilogue or an accumulating
    init would cost it passes that the problem does not ask for, so those are left out.
    """
    if not isinstance(problem, Matmul) or not problem.element.is_float:
        return {}
    if problem.bias or problem.epilogue != "none" or problem.init != "zero":
        return {}
    a, b, out = operands["A"], operands["B"], np.empty_like(operands["C"])

    def openblas(repeat: int) -> None:
        for _ in range(repeat):
            np.matmul(a, b, out=out)

    return {"openblas": openblas}
