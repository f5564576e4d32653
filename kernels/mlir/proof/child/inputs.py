"""Inputs for unknown payloads: each kind reveals errors that another one hides."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from tilewise.kernels.mlir.lowering.functions import Shaped, is_float
from tilewise.kernels.mlir.proof.child.comparison import smallest, spacing
from tilewise.kernels.mlir.proof.child.traits import Traits
from tilewise.kernels.oracle.operands import Array, to_bf16

LARGEST_HALVES = 6
_NARROW = {"f16": (-6, 2)}  # 65504 is its largest; sums of products have to stay below
_WIDE = (-20, 20)
_LARGE = {"f16": (2, 5), "f64": (20, 400)}
_LARGER = (20, 50)
_DENORMAL_BITS = {"f64": 52, "f32": 23, "f16": 10, "bf16": 7}
_LARGEST_EXPONENT = {"f64": 1023, "f16": 15}
_FEWEST_SPECIAL, _SPECIAL_SHARE = 8, 64
_SPIKES, _SPIKE_SIZE = 4, 2.0**40
_SPIKE_SIZES = {"f16": 2.0**10}
Generator = np.random.Generator


def uniform(random: Generator, kind: Shaped) -> Array:
    """Return floats in [-1, 1) with full mantissas, which no narrower type holds; any integers."""
    if is_float(kind.element):
        return random.random(kind.shape) * 2 - 1
    return _any_integers(random, kind)


def wide(random: Generator, kind: Shaped) -> Array:
    """Return values of every magnitude and both signs; narrower exponents lose the small ones."""
    if not is_float(kind.element):
        shifts = random.integers(0, 8 * kind.dtype.itemsize, kind.shape, kind.dtype)
        return _any_integers(random, kind) >> shifts
    low, high = _NARROW.get(kind.element, _WIDE)
    signs = random.choice([-1.0, 1.0], kind.shape)
    return signs * np.exp2(random.uniform(low, high, kind.shape))


def positive(random: Generator, kind: Shaped) -> Array:
    """Return values in [1/2, 2), where roots and logarithms exist; non-negative integers."""
    if is_float(kind.element):
        return random.uniform(0.5, 2.0, kind.shape)
    return _any_integers(random, kind) & np.iinfo(kind.dtype).max


def halves(random: Generator, kind: Shaped) -> Array:
    """Return small halves, whose sums of products are exact in any order; small integers."""
    values = random.integers(-LARGEST_HALVES, LARGEST_HALVES + 1, kind.shape)
    return values / 2 if is_float(kind.element) else values // 2


def extreme(random: Generator, kind: Shaped) -> Array:
    """Return floats so large that few products overflow; the ends of the range of integers."""
    if is_float(kind.element):
        low, high = _LARGE.get(kind.element, _LARGER)
        return random.choice([-1.0, 1.0], kind.shape) * np.exp2(
            random.uniform(low, high, kind.shape)
        )
    limits = np.iinfo(kind.dtype)
    ends = [limits.min, limits.min + 1, -1, 0, 1, limits.max - 1, limits.max]
    return random.choice(np.array(ends, kind.dtype), kind.shape)


def denormal(random: Generator, kind: Shaped) -> Array:
    """Return floats below the smallest normal one, in whole units of the smallest."""
    if not is_float(kind.element):
        return uniform(random, kind)
    units = random.integers(1, 1 << _DENORMAL_BITS[kind.element], kind.shape)
    return random.choice([-1.0, 1.0], kind.shape) * units * smallest(kind.element)


def infinite(random: Generator, kind: Shaped) -> Array:
    """Return `uniform` values, with infinities and zeros of both signs at a few places."""
    return _sprinkled(random, kind, [np.inf, -0.0, -np.inf, 0.0])


def largest(random: Generator, kind: Shaped, number: int = 0) -> Array:
    """Return infinities, signed zeros, the largest numbers, and one in seven as `uniform`.

    `number` is that of the array: pairs of values meet at one place of the first two arrays, and
    triples at one of the first three.
    """
    found = uniform(random, kind)
    if not is_float(kind.element):
        return found
    end = (2 - spacing(kind.element)) * 2.0 ** _LARGEST_EXPONENT.get(kind.element, 127)
    values = np.array([np.inf, -0.0, end, -np.inf, 0.0, -end, np.nan])
    places = np.arange(found.size) // values.size**number % values.size
    chosen = values[places].reshape(kind.shape)
    return np.where(np.isnan(chosen), found, chosen)


def nan(random: Generator, kind: Shaped) -> Array:
    """Return `uniform` values, with NaNs at a few places."""
    return _sprinkled(random, kind, [np.nan])


def _sprinkled(random: Generator, kind: Shaped, values: list[float]) -> Array:
    """Return uniform floats with each of `values` in turn at random places; any integers."""
    found = uniform(random, kind)
    if not is_float(kind.element):
        return found
    flat = found.reshape(-1)
    count = min(max(_FEWEST_SPECIAL, flat.size // _SPECIAL_SHARE), -(-flat.size // 2))
    places = random.permutation(flat.size)[:count]
    flat[places] = np.resize(values, count)
    return found


Kind = Callable[[Generator, Shaped], Array]
KINDS: dict[str, Kind] = {kind.__name__: kind for kind in (uniform, wide, positive, halves)}
SPECIAL: dict[str, Kind] = {
    kind.__name__: kind for kind in (extreme, denormal, infinite, largest, nan)
}
"""Values that a payload may not be made for (`kinds_of`)."""
SCALED = "scaled denormal"
"""The first array of floats as `positive`, all others as `denormal`: products do not vanish."""


def kinds_of(arguments: Sequence[Shaped], traits: Traits) -> list[str]:
    """Return the kinds of inputs that a payload is run on."""
    floats = [one for one in arguments if is_float(one.element)]
    if not floats:
        return [*KINDS, "extreme"]
    found = [*KINDS, "denormal"] + ([SCALED] if len(floats) > 1 else [])
    found.append("extreme")
    if not traits.assumes_finite:
        found += ["infinite" if traits.has_sums else "largest", "nan"]
    return found


def make_inputs(kind: str, arguments: Iterable[Shaped], seed: int) -> list[Array]:
    """Return random values of one kind for every argument, writable ones included."""
    random = np.random.default_rng([seed, *kind.encode()])
    made, floats = [], 0
    for one in arguments:
        make = {**KINDS, **SPECIAL}.get(kind, denormal if floats else positive)
        values = largest(random, one, floats) if kind == "largest" else make(random, one)
        made.append(in_type(values, one))
        floats += is_float(one.element)
    return made


def make_spiked(arguments: Sequence[Shaped], seed: int) -> Iterator[list[Array]]:
    """Yield inputs once per array of floats, with large numbers at a few of its places.

    The other arrays are zero at every second place or so; all are uniform elsewhere.
    """
    random = np.random.default_rng(seed)
    for spiked in arguments:
        if is_float(spiked.element):
            size = _SPIKE_SIZES.get(spiked.element, _SPIKE_SIZE)
            made = []
            for one in arguments:
                values = uniform(random, one)
                flat = values.reshape(-1)
                places = random.permutation(flat.size)
                if one is spiked:
                    flat[places[:_SPIKES]] = size
                else:
                    flat[places[: flat.size // 2]] = 0
                made.append(in_type(values, one))
            yield made


def in_type(values: Array, kind: Shaped) -> Array:
    """Return values in the type of an argument."""
    if kind.element == "bf16":
        return to_bf16(np.asarray(values, np.float32))
    return np.asarray(values).astype(kind.dtype)


def _any_integers(random: Generator, kind: Shaped) -> Array:
    limits = np.iinfo(kind.dtype)
    return random.integers(limits.min, limits.max, kind.shape, kind.dtype, endpoint=True)
