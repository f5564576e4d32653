"""The primitives of macro-kernels as Numba's intrinsics."""

from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from tilewise.kernels.native.language.primitives import (
    emit_add_shared,
    emit_add_word,
    emit_call_address,
    emit_fill,
    emit_offer_core,
    emit_pause,
    emit_read_shared,
    emit_wait_for_stores,
    emit_word,
    emit_write_shared,
)


def as_intrinsic(emit: Any, result: Any) -> Any:
    """Return the intrinsic of what `emit` emits for i64 arguments."""

    def typed(_context: Any, *arguments: Any) -> Any:
        is_tuple = len(arguments) == 1 and isinstance(arguments[0], types.BaseTuple)
        words = arguments[0] if is_tuple else types.StarArgTuple(arguments)

        def lower(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            given = emit(builder, *cgutils.unpack_tuple(builder, args[0]))
            return context.get_dummy_value() if given is None else given

        return result(words), lower

    return intrinsic(typed)


call_address = as_intrinsic(emit_call_address, types.void)
word = as_intrinsic(emit_word, types.int64)
add_word = as_intrinsic(emit_add_word, types.void)
fill = as_intrinsic(emit_fill, types.void)
wait_for_stores = as_intrinsic(emit_wait_for_stores, types.void)
read_shared = as_intrinsic(emit_read_shared, types.int64)
write_shared = as_intrinsic(emit_write_shared, types.void)
add_shared = as_intrinsic(emit_add_shared, types.int64)
pause = as_intrinsic(emit_pause, types.void)
offer_core = as_intrinsic(emit_offer_core, types.void)
