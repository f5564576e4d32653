"""The passes by name, each compiled when it is first asked for."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

from tilewise.kernels.native.passes.chain import barrier_pass, nothing_pass
from tilewise.kernels.native.passes.copies import blocks_pass, fill_pass, rows_pass
from tilewise.kernels.native.passes.elementwise import (
    add_pass,
    clamp_pass,
    divide_pass,
    multiply_pass,
    narrow_pass,
    widen_pass,
)
from tilewise.kernels.native.passes.windows import added, larger, sum_pass, window_pass

_MAKERS: dict[str, Callable[[], Any]] = {
    "max": lambda: window_pass(larger, -inf),
    "window sum": lambda: window_pass(added, 0.0),
    "sum": sum_pass,
    "add": add_pass,
    "clamp": clamp_pass,
    "multiply": multiply_pass,
    "divide": divide_pass,
    "narrow": narrow_pass,
    "widen": widen_pass,
    "fill": fill_pass,
    "barrier": barrier_pass,
    "nothing": nothing_pass,
    **{f"rows {size}": functools.partial(rows_pass, size) for size in (1, 2, 4, 8)},
    **{f"blocks {size}": functools.partial(blocks_pass, size) for size in (1, 2, 4, 8)},
}


@dataclass(frozen=True)
class Pass:
    """A compiled pass.

    Attributes:
        entry: its address, which holds while this object lives.
        owner: of the code.
    """

    entry: int
    owner: Any


@functools.cache
def pass_of(name: str) -> Pass:
    """A pass: `max`, `window sum`, `sum`, `add`, `clamp`, `multiply`, `divide`, `narrow`, `widen`.

    Besides, `fill`, `barrier`, `nothing`; `rows SIZE` and `blocks SIZE` by bytes of an element.
    """
    made = _MAKERS[name]()
    return Pass(made.address, made)
