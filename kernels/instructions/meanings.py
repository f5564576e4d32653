"""What instructions mean, on arrays that hold the elements exactly."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy.typing as npt

    Array = npt.NDArray[Any]


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
