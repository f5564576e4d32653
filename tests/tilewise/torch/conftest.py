"""Tests of PyTorch's backend, left out where torch is not installed."""

from tilewise.requirements import is_present

if is_present("torch"):
    from tests.tilewise.torch.stored import cache, fresh, stored

    __all__ = ["cache", "fresh", "stored"]  # fixtures
else:
    collect_ignore_glob = ["test_*.py"]
