"""Strassen's products: a product of matrices of two by two blocks from seven products of blocks.

    M[p] = (sum over quadrants of IMAGE[p] A) (sum over quadrants of FILTER[p] B)
    C[q] = sum over products of RESULT[q] M[p]

where eight products would multiply each block of A with two of B (Strassen, Gaussian Elimination
is not Optimal, Numerische Mathematik 13, 1969). With two levels the products of blocks are made
likewise, and 49 stand for 64. Winograd's form has 15 additions in place of 18, but longer sums and
larger errors (Higham, Accuracy and Stability of Numerical Algorithms, 2002, chapter 23); as all
sums of a value are made while it is in registers, fewer additions gain little here.

Quadrants are in the order (first, first), (first, second), (second, first), (second, second) of
the two axes of their operand. Which rows are in the first half does not matter: here those are the
even rows, so that the rows of a group lie side by side and a last group of fewer needs no copy.
Columns and the reduction are cut in the middle. Huang, Smith, Henry and van de Geijn (Strassen's
Algorithm Reloaded, SC 2016) add while they pack, as is done here, and so need no memory for whole
sums of operands.
"""

from fractions import Fraction

from tilewise.kernels.winograd import Matrix


def _matrix(*rows: str) -> Matrix:
    """A matrix of 0, 1 and -1, as written."""
    values = {"+": Fraction(1), "-": Fraction(-1), ".": Fraction(0)}
    return tuple(tuple(values[sign] for sign in row) for row in rows)


PRODUCTS = 7
"""Of the quadrants; the plain method has 8."""

LEVELS = (1, 2)
"""How often operands are cut in halves: with 2, the products of quadrants are made likewise."""

IMAGE = _matrix("+..+", "..++", "+...", "...+", "++..", "-.+.", ".+.-")
"""Of the quadrants of A, what each product has as its left factor."""

FILTER = _matrix("+..+", "+...", ".+.-", "-.+.", "...+", "++..", "..++")
"""Of the quadrants of B, what each product has as its right factor."""

RESULT = _matrix("+..+-.+", "..+.+..", ".+.+...", "+-+..+.")
"""Of the products, what each quadrant of C is."""
