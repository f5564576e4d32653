"""Words at addresses, calls through them, and memory set to a byte: Numba's intrinsics.

In the language of drivers (`tilewise.kernels.native.language.to_ir`) these are primitives.
"""

from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from tilewise.kernels.native.language.primitives import (
    emit_add_word,
    emit_call_address,
    emit_fill,
    emit_wait_for_stores,
    emit_word,
)


@intrinsic
def call_address(_typing: Any, address: Any, *arguments: Any) -> Any:
    """Call the void function at `address` with i64 arguments."""
    tail = (
        arguments[0]
        if len(arguments) == 1 and isinstance(arguments[0], types.BaseTuple)
        else types.StarArgTuple(arguments)
    )

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        emit_call_address(builder, args[0], cgutils.unpack_tuple(builder, args[1]))
        return context.get_dummy_value()

    return types.void(address, tail), codegen


@intrinsic
def word(_typing: Any, address: Any, index: Any) -> Any:
    """The i64 at position `index` of those at `address`."""

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return emit_word(builder, *args)

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def add_word(_typing: Any, address: Any, index: Any, value: Any) -> Any:
    """Add to the i64 at position `index` of those at `address`."""

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        emit_add_word(builder, *args)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@intrinsic
def fill(_typing: Any, address: Any, size: Any, byte: Any) -> Any:
    """Set `size` bytes at `address` to `byte`."""

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        emit_fill(builder, *args)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@intrinsic
def wait_for_stores(_typing: Any) -> Any:
    """Wait until stores past the caches are in memory, where other cores see them."""

    def codegen(context: Any, builder: Any, _signature: Any, _args: Any) -> Any:
        emit_wait_for_stores(builder)
        return context.get_dummy_value()

    return types.void(), codegen
