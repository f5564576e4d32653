"""How far two right results of a model may be apart, from the sums that it is made of.

A sum of k products in an arithmetic of unit roundoff u has a relative error of about sqrt(k) u
(Higham and Mary, A New Approach to Probabilistic Rounding Error Analysis, 2019). Where its result is
then rounded to a narrow type whose neighbours are U apart, a share e / U of the values falls to the
other side, each by U: a relative rms error of sqrt(e U). Errors of different layers are independent,
so their squares add.
"""

from collections.abc import Iterable
from math import sqrt

from kernels.problem import Conv2d, Matmul, Problem

SAFETY = 4.0
"""Two results differ; Winograd's rms error is up to twice that of a plain sum."""

ELEMENTWISE = 2.0**-20
"""Of all that is not a contraction, such as an exponential: some units of f32."""

UNITS = {"f32": 2.0**-24, "f64": 2.0**-53}
SPACING = {"bf16": 2.0**-7, "f16": 2.0**-10}


def tolerance(contractions: Iterable[tuple[Problem, int]]) -> float:
    """Relative rms deviation allowed for a model of these contractions, each so many times."""
    total = 0.0
    for problem, count in contractions:
        element = problem.element
        if element.is_float:
            error = sqrt(_length(problem)) * UNITS[element.accumulator]
            total += count * (error**2 + error * SPACING.get(element.name, 0.0))
    return SAFETY * sqrt(total) + ELEMENTWISE


def _length(problem: Problem) -> int:
    """How many products each sum has."""
    if isinstance(problem, Matmul):
        return problem.k
    assert isinstance(problem, Conv2d)
    return problem.kh * problem.kw * problem.ci // problem.groups
