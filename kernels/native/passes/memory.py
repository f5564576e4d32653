"""Memory at addresses as arrays, for compiled functions that get no more than an address."""

from typing import Any

from llvmlite import ir
from numba import carray, njit, types
from numba.extending import intrinsic

from tilewise.kernels.native.language.words import word


@intrinsic
def pointer(_typing: Any, address: Any) -> Any:
    """An address as a pointer."""

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.int64), codegen


@njit(nogil=True)
def elements(address: int, count: int, dtype: Any) -> Any:
    """`count` elements of a type at an address."""
    return carray(pointer(address), count, dtype)


@njit(nogil=True)
def part(at: int, which: int, dtype: Any) -> Any:
    """A thread's elements of the array whose address is a parameter.

    Args:
        at: the address of a pass's parameters, of which the third and fourth are first and end.
        which: parameter.
        dtype: of the elements.
    """
    first, end = word(at, 2), word(at, 3)
    size = carray(pointer(at), 1, dtype).itemsize
    return elements(word(at, which) + first * size, end - first, dtype)
