"""Inputs for payloads that nothing is known of: each kind shows what another one hides."""

from collections.abc import Callable, Iterable

import numpy as np

from kernels.mlir.lowering.signature import Shaped, is_float
from kernels.oracle.operands import Array, to_bf16

LARGEST_WHOLE = 3
_NARROW = {"f16": (-6, 2)}  # 65504 is its largest; sums of products have to stay below
_WIDE = (-20, 20)
Generator = np.random.Generator


def uniform(random: Generator, kind: Shaped) -> Array:
    """Floats in [-1, 1) with whole mantissas, so that no narrower type holds them; any integers."""
    if is_float(kind.element):
        return random.random(kind.shape) * 2 - 1
    return _any_integers(random, kind)


def wide(random: Generator, kind: Shaped) -> Array:
    """Of every magnitude and both signs: small ones are lost where the exponent is narrower."""
    if not is_float(kind.element):
        shifts = random.integers(0, 8 * kind.dtype.itemsize, kind.shape, kind.dtype)
        return _any_integers(random, kind) >> shifts
    low, high = _NARROW.get(kind.element, _WIDE)
    signs = random.choice([-1.0, 1.0], kind.shape)
    return signs * np.exp2(random.uniform(low, high, kind.shape))


def positive(random: Generator, kind: Shaped) -> Array:
    """In [1/2, 2), where roots and logarithms have values; integers that are not negative."""
    if is_float(kind.element):
        return random.uniform(0.5, 2.0, kind.shape)
    return _any_integers(random, kind) & np.iinfo(kind.dtype).max


def whole(random: Generator, kind: Shaped) -> Array:
    """Small whole numbers, of which sums of products are exact in any order."""
    return random.integers(-LARGEST_WHOLE, LARGEST_WHOLE + 1, kind.shape)


KINDS: dict[str, Callable[[Generator, Shaped], Array]] = {
    kind.__name__: kind for kind in (uniform, wide, positive, whole)
}


def make_inputs(kind: str, arguments: Iterable[Shaped], seed: int) -> list[Array]:
    """Random values of one of `KINDS` for every argument, those that are written to as well."""
    random = np.random.default_rng([seed, *kind.encode()])
    return [in_type(KINDS[kind](random, argument), argument) for argument in arguments]


def in_type(values: Array, kind: Shaped) -> Array:
    """Values as an argument can hold them."""
    if kind.element == "bf16":
        return to_bf16(np.asarray(values, np.float32))
    return np.asarray(values).astype(kind.dtype)


def _any_integers(random: Generator, kind: Shaped) -> Array:
    limits = np.iinfo(kind.dtype)
    return random.integers(limits.min, limits.max, kind.shape, kind.dtype, endpoint=True)
