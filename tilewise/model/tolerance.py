"""How far two right results of a model may be apart, from the sums that it is made of.

A sum of k products in an arithmetic of unit roundoff u has a relative error of about sqrt(k) u
(Higham and Mary, A New Approach to Probabilistic Rounding Error Analysis, 2019). A narrow operand
was rounded before: by half its unit roundoff, root mean square. That counts in full, since a sum
that differs in its last bit may be rounded to the other neighbour, and the differences of one layer
do that to all sums of the next. Errors of layers are independent, so their squares add.

It says nothing of a model that magnifies its errors: that has to be measured in a wider type.
"""

from collections.abc import Iterable
from math import sqrt

from tilewise.kernels.problem import Problem

SAFETY = 3.2
"""Of a plain sum's error: that of two levels of quadrants is 3 times as large, and one of those
differs from a plain sum by sqrt(1 + 3^2) = 3.2 times it; Winograd's is up to twice as large."""

ELEMENTWISE = 2.0**-20
"""Of all that is not a contraction, such as an exponential: some units of f32."""

UNITS = {"f32": 2.0**-24, "f64": 2.0**-53}
NARROW = {"bf16": 2.0**-9, "f16": 2.0**-12}


def tolerance(contractions: Iterable[tuple[Problem, int]]) -> float:
    """Relative rms deviation allowed for a model of these contractions, each so many times."""
    total = 0.0
    for problem, count in contractions:
        element = problem.element
        if element.is_float:
            of_sum = problem.depth * UNITS[element.accumulator] ** 2
            total += count * (of_sum + NARROW.get(element.name, 0.0) ** 2)
    return SAFETY * sqrt(total) + ELEMENTWISE
