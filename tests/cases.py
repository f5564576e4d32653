"""How many random cases a test draws: some, always the same, or many others in `make test-long`."""

from hypothesis import HealthCheck, settings

TIMES_MORE = 10
MANY = 1001  # of the profile of `make test-long`, which is known by it


def cases(number: int) -> settings:
    """Settings of a test that draws `number` cases, none of which has a limit of time."""
    is_long = settings().max_examples == MANY
    return settings(
        max_examples=number * TIMES_MORE if is_long else number,
        derandomize=not is_long,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
