"""Searches of tests and machines of their pools are measured briefly."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.short_timings import SHORTER, python_path
from tilewise.kernels.system.children import child_environment
from tilewise.service.workers import presence

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="package", autouse=True)
def measured_briefly() -> Iterator[None]:
    """Searches ask what is found, not how surely it is the fastest; pools take a small buffer."""

    def environment() -> dict[str, str]:
        return child_environment(PYTHONPATH=python_path(ROOT))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(presence, "child_environment", environment)
        for module, changes in SHORTER.items():
            for name, value in changes.items():
                patch.setattr(f"{module}.{name}", value)
        yield
