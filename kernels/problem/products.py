"""What instructions add to sums, in NumPy: the meanings of their declarations.

C [.., rows, cols], A [.., rows, k] and B [.., k, cols] to the new C.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilewise.kernels.problem.keys import Array


def fused(c: "Array", a: "Array", b: "Array") -> "Array":
    """Add exact products of floats one after another, the last of `k` first."""
    total = c.astype("float64")
    for k in reversed(range(a.shape[-1])):
        product = a[..., k : k + 1].astype("float64") * b[..., k : k + 1, :]
        total = (total + product).astype(c.dtype).astype("float64")
    return total.astype(c.dtype)


def rounded(c: "Array", a: "Array", b: "Array") -> "Array":
    """Add products of floats that are rounded before."""
    total: Array = c + (a.astype(c.dtype) @ b.astype(c.dtype)).astype(c.dtype)
    return total


def wrapping(c: "Array", a: "Array", b: "Array") -> "Array":
    """Add products of integers modulo 2**32."""
    total: Array = c + a.astype(c.dtype) @ b.astype(c.dtype)
    return total


def in_parts(c: "Array", a: "Array", b: "Array") -> "Array":
    """Add products of f32 as high times high, low times high and high times low bf16."""
    from tilewise.kernels.problem.rounding import rounded as nearest

    high = [nearest(x, "bf16").astype("float32") for x in (a, b)]
    low = [nearest(x - y, "bf16").astype("float32") for x, y in zip((a, b), high, strict=True)]
    for x, y in (high, (low[0], high[1]), (high[0], low[1])):
        c = fused(c, x, y)
    return c
