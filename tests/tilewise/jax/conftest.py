"""Tests of calls from JAX, left out where jax is not installed."""

from tests.tilewise.stored_kernels import cache, stored
from tilewise.requirements import is_present

__all__ = ["cache", "stored"]  # fixtures
collect_ignore_glob = [] if is_present("jax") else ["test_*.py"]
