"""Tuned kernels in JAX, on CPUs: `tilewise.jax.matmul(a, b)` inside or outside of `jax.jit`."""

from tilewise.errors import TilewiseError
from tilewise.requirements import is_present, not_installed

if not is_present("jax"):
    raise TilewiseError(not_installed("tilewise.jax", "jax", "jax"))

from tilewise.jax.calls import Call, load, matmul

__all__ = ["Call", "load", "matmul"]
