"""What tests of the extension share."""

from tests.kernels.conftest import host

__all__ = ["host"]
