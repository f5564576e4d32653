import numpy as np
import pytest

from tilewise.model.child import deviation, has_numbers
from tilewise.model.signature import TensorType

FLOATS = TensorType((3,), "f32")


def of(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("found", "is_equal"),
    [
        ((1, np.inf, np.nan), True),
        ((1, -np.inf, np.nan), False),
        ((1, np.nan, np.nan), False),
        ((1, 2, np.nan), False),
    ],
)
def test_what_is_not_finite_has_to_be_the_same(found: tuple[float, ...], *, is_equal: bool) -> None:
    apart = deviation([of(*found)], [of(1, np.inf, np.nan)], [FLOATS])
    assert apart == (0.0 if is_equal else np.inf)


def test_results_without_a_number_prove_nothing() -> None:
    nothing, number = of(np.nan, np.inf, np.nan), of(np.nan, 1, np.nan)
    assert not has_numbers([nothing], [FLOATS])
    assert has_numbers([nothing, number], [FLOATS, FLOATS])
    assert has_numbers([], [])
    assert has_numbers([np.array([1, 2, 3])], [TensorType((3,), "i64")])
