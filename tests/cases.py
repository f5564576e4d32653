"""How many cases a test has: some, always the same, or many others in `make test-long`."""

import os
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

TIMES_MORE = 10
MANY = 1001  # of the profile of `make test-long`, which is known by it
ALL = "TILEWISE_TEST_ALL"  # in the environment while more than `make test` runs


def cases(number: int, *, short: int | None = None) -> settings:
    """Settings of a test that draws `number` cases, none of which has a limit of time.

    Args:
        number: of cases.
        short: fewer, for `make test`; None for half of them.
    """
    is_long = settings().max_examples == MANY
    if not is_long and ALL not in os.environ:
        number = short or (number + 1) // 2
    return settings(
        max_examples=number * TIMES_MORE if is_long else number,
        derandomize=not is_long,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


def some(values: Iterable[Any], *, of: int = 0, all_of: int = 1) -> list[Any]:
    """Return parameters of a test, of which `make test` runs the first of each `of`, of 0 none.

    `make test-all` adds the first of each `all_of`, and `make test-long` has all. Of a product of
    parameters every value is still run if no divisor is common to `of` and the numbers of values.
    """
    found = []
    for at, one in enumerate(values):
        marks = [pytest.mark.full] if not of or at % of else []
        if marks and at % all_of:
            marks.append(pytest.mark.long)
        found.append(pytest.param(*one if isinstance(one, tuple) else (one,), marks=marks))
    return found
