"""Machines of tests' pools are measured briefly."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.short_timings import python_path
from tilewise.kernels.system.children import child_environment
from tilewise.service.workers import presence

ROOT = Path(__file__).parent.parent.parent


@contextlib.contextmanager
def short_peaks() -> Iterator[None]:
    """Pools of this process have their machine measured by children with a small buffer."""

    def environment() -> dict[str, str]:
        return child_environment(PYTHONPATH=python_path(ROOT))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(presence, "child_environment", environment)
        yield
