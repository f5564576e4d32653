"""The process that runs a pass inside IREE: `python -m tilewise.search.libraries.passes_child`."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewise.kernels.dispatches.passes.alone import expected
from tilewise.kernels.dispatches.passes.row_pass import RowPass
from tilewise.kernels.dispatches.patterns.alone import ENTRY
from tilewise.kernels.mlir.iree.runtime import LoadedModule, open_device
from tilewise.kernels.oracle.operands import Array, empty_aligned, poison, to_bf16
from tilewise.kernels.system.limited_child import reply_to_request, stage
from tilewise.kernels.system.typed_json import from_json, to_json
from tilewise.search.libraries.passes import Compared
from tilewise.search.timing.measure import interleave

ROUNDS = 30
_HALF, _SIGN = 16, 0x8000
DRAWN: tuple[Callable[[np.random.Generator, tuple[int, ...]], Array], ...] = (
    lambda random, shape: random.standard_normal(shape),
    lambda random, shape: random.uniform(0.5, 1.5, shape),
)
"""Operands: of any sign, and where the result then is no number, of roots and logarithms."""


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Compare a pass with what is exact, and time it beside IREE alone."""
    one = from_json(RowPass, request["pass"])
    stage("load")
    device = open_device(request["threads"])
    ours, alone = (
        LoadedModule(bytes.fromhex(request[name]), device) for name in ("with_pass", "alone")
    )
    operands, exact = _drawn(one)
    if not np.isfinite(exact).all():
        return to_json(Compared(0, 0, (), (), "its results on random operands are no numbers"))
    shape, kind = one.pattern.result.shape or (), one.pattern.result.element
    out = empty_aligned(shape, np.uint16 if kind == "bf16" else np.float32)
    kinds = [value.element for value in (*one.pattern.operands, one.pattern.result)]
    given = list(zip((*operands, out), kinds, strict=True))
    stage("compare")
    error, over_error = _error(ours, given, exact), 0.0
    if request["over"] is not None:
        over = LoadedModule(bytes.fromhex(request["over"]), device)
        over_error = _error(over, _with_negated(given, one.overwrites), exact)
    stage("time")
    runs = [module.bind(ENTRY, given) for module in (ours, alone)]
    until = time.monotonic() + request["budget_s"]
    samples = interleave(runs, ROUNDS, request["threads"], until=until)
    largest = float(np.max(np.abs(exact)))
    with_pass, without = (tuple(one.times) for one in samples)
    return to_json(Compared(error, largest, with_pass, without, over_error=over_error))


def _error(module: LoadedModule, given: Sequence[tuple[Array, str]], exact: Array) -> float:
    """The largest deviation of what a module makes into its last argument."""
    out, kind = given[-1]
    poison(out)
    module.bind(ENTRY, given)(1)
    found = _wide(out, kind).reshape(exact.shape)
    return float(np.max(np.abs(found - exact))) if np.isfinite(found).all() else float("inf")


def _with_negated(
    given: Sequence[tuple[Array, str]], negated: int | None
) -> list[tuple[Array, str]]:
    """Arrays of which one is negated, as `module_over` takes it."""
    return [(_negated(*one), one[1]) if at == negated else one for at, one in enumerate(given)]


def _negated(array: Array, kind: str) -> Array:
    held = empty_aligned(array.shape, array.dtype.type)
    held[...] = array ^ _SIGN if kind == "bf16" else -array
    return held


def _drawn(one: RowPass) -> tuple[list[Array], Array]:
    """Random operands, and the exact result of them."""
    random = np.random.default_rng(0)
    for draw in DRAWN:
        operands = []
        for value in one.pattern.operands:
            made = draw(random, value.shape or ()).astype(np.float32)
            is_narrow = value.element == "bf16"
            held = empty_aligned(made.shape, np.uint16 if is_narrow else np.float32)
            held[...] = to_bf16(made) if is_narrow else made
            operands.append(held)
        kinds = [value.element for value in one.pattern.operands]
        with np.errstate(all="ignore"):
            wide = [_wide(held, kind) for held, kind in zip(operands, kinds, strict=True)]
            exact = expected(one, wide)
        if np.isfinite(exact).all():
            break
    return operands, exact


def _wide(array: Array, kind: str) -> Array:
    if kind == "bf16":
        return (array.astype(np.uint32) << _HALF).view(np.float32).astype(np.float64)
    return array.astype(np.float64)


if __name__ == "__main__":
    reply_to_request(answer)
