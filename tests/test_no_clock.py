"""What every test has, wherever it lies."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


@given(st.none())
def test_no_example_of_hypothesis_is_timed(_nothing: None) -> None:
    assert settings.default is not None
    assert settings.default.deadline is None
    assert HealthCheck.too_slow in settings.default.suppress_health_check
