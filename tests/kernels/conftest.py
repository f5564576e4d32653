"""Strategies and fixtures shared by the tests of `kernels`."""

import pytest

from tilewise.kernels.target import Target, detect


@pytest.fixture(scope="session")
def host() -> Target:
    """This machine."""
    return detect()
