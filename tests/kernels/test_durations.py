"""Durations are printed in the unit of their magnitude, wherever they are printed."""

import pytest

from tilewise.kernels.quoting import duration


@pytest.mark.parametrize(
    ("time_us", "said"),
    [
        (0.0136, "13.6 ns"),
        (0.99, "990.0 ns"),
        (1.0, "1.0 us"),
        (9999.0, "9999.0 us"),
        (13595.1, "13.60 ms"),
        (12e6, "12.00 s"),
        (0.0, "0.0 ns"),
        (None, "-"),
    ],
)
def test_the_unit_fits(time_us, said):
    assert duration(time_us) == said
