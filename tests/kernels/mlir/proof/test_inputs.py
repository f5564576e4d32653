"""Inputs of four kinds: what each is to bring out is in it."""

import numpy as np
import pytest

from tilewise.kernels.mlir.lowering.functions import TYPES, Shaped, is_float
from tilewise.kernels.mlir.proof.child.inputs import KINDS, LARGEST_HALVES, make_inputs
from tilewise.kernels.oracle.operands import Array, to_bf16, widened

FLOATS = [element for element in TYPES if is_float(element)]
INTEGERS = [element for element in TYPES if not is_float(element)]
SHAPE = (37, 29)


def made(kind: str, element: str, seed: int = 0) -> Array:
    """One input, as numbers."""
    (found,) = make_inputs(kind, [Shaped(SHAPE, element)], seed)
    assert (found.shape, found.dtype) == (SHAPE, TYPES[element])
    if is_float(element):
        return widened(found, "bf16") if element == "bf16" else found.astype(np.float64)
    return found


@pytest.mark.parametrize("kind", ["uniform", "wide", "positive"])
@pytest.mark.parametrize(("element", "narrower"), [("f64", "f32"), ("f32", "f16"), ("f32", "bf16")])
def test_no_narrower_type_holds_the_numbers(kind: str, element: str, narrower: str) -> None:
    found = made(kind, element)
    if narrower == "bf16":
        held = widened(to_bf16(found.astype(np.float32)), "bf16")
    else:
        with np.errstate(over="ignore"):
            held = found.astype(TYPES[narrower]).astype(np.float64)
    assert (held != found).mean() > 0.9


@pytest.mark.parametrize("element", FLOATS)
def test_each_kind_has_its_range(element: str) -> None:
    uniform, wide, positive, halves = (made(kind, element) for kind in KINDS)
    assert uniform.min() < -0.9 and 0.9 < uniform.max() <= 1
    assert positive.min() >= 0.5 and positive.max() <= 2
    assert set(2 * halves.ravel()) == set(range(-LARGEST_HALVES, LARGEST_HALVES + 1))
    assert np.isfinite(wide).all() and wide.min() < 0 < wide.max()
    exponents = np.log2(np.abs(wide))
    assert exponents.max() - exponents.min() > (7 if element == "f16" else 35)


@pytest.mark.parametrize("element", INTEGERS)
def test_integers_take_their_whole_range_and_every_magnitude(element: str) -> None:
    limits = np.iinfo(TYPES[element])
    uniform, wide, positive, halves = (made(kind, element) for kind in KINDS)
    assert uniform.min() < 0.9 * limits.min and uniform.max() > 0.9 * limits.max
    assert (np.abs(wide.astype(np.float64)) < limits.max / 2**6).mean() > 0.1
    assert (np.abs(wide.astype(np.float64)) > limits.max / 2**6).mean() > 0.03
    assert positive.min() >= 0
    assert set(2 * halves.ravel()) == set(range(-LARGEST_HALVES, LARGEST_HALVES + 1, 2))


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_makes_the_same_inputs_and_another_seed_others(kind: str) -> None:
    assert np.array_equal(made(kind, "f32"), made(kind, "f32"))
    assert not np.array_equal(made(kind, "f32"), made(kind, "f32", seed=1))
    first, second = make_inputs(kind, [Shaped(SHAPE, "f32")] * 2, 0)
    assert not np.array_equal(first, second)


def test_each_pair_of_special_numbers_is_at_some_place() -> None:
    first, second, _ = make_inputs("largest", [Shaped((7, 11), "f32")] * 3, 0)
    special = ~((np.abs(first) < 1) & (first != 0))
    pairs = {
        (str(a), str(b)) for a, b in zip(first[special], second[special], strict=True) if abs(b) > 1
    }
    zeros = {(str(a), str(b)) for a, b in zip(first.ravel(), second.ravel(), strict=True)}
    assert len(pairs) == 6 * 4 and {("0.0", "-0.0"), ("-0.0", "0.0")} <= zeros
