"""OpenBLAS: the one that NumPy carries, through `np.matmul` into the problem's own C."""

from collections.abc import Callable
from functools import singledispatch

import numpy as np

from tilewise.kernels.oracle.operands import Array, Operands
from tilewise.kernels.problem import Conv2d, Matmul, Problem
from tilewise.kernels.target import detect
from tilewise.search.peers.blas_family import better_family, hold_threads
from tilewise.search.peers.blas_family import product as product_by
from tilewise.search.peers.variant import PeerAbsentError, Variant

BLAS_TYPES = ("f32", "f64")


def variants(problem: Problem, operands: Operands, threads: int) -> list[Variant]:
    """Its ways; bias, accumulation and relu are further passes, as its users write them.

    Besides NumPy's own way there is one by another family of kernels, where OpenBLAS
    does not know the processor.

    Raises:
        PeerAbsentError: BLAS has no such product, or not on so many threads, or NumPy was
            built with another library.
    """
    _require_openblas()
    if problem.element.name not in BLAS_TYPES:
        raise PeerAbsentError(f"BLAS has no {problem.element.name} product")
    a, b, c = _matrices(problem, operands)
    product = c
    if problem.accumulates:
        product = np.empty_like(c)
    passes = _passes(problem, operands, product, c)

    def way(name: str, multiply: Callable[[], object]) -> Variant:
        def run(repeat: int) -> None:
            for _ in range(repeat):
                multiply()
                for one in passes:
                    one()

        return Variant("openblas", name, run, lambda: operands["C"])

    ways = [way("matmul", lambda: np.matmul(a, b, out=product))]
    family = better_family(detect())
    _require_threads(threads, family)
    other = product_by(a, b, product, family) if family else None
    return [*ways, way(f"{family} kernels", other)] if other else ways


def version() -> str:
    """Such as `OpenBLAS 0.3.31.188.0 in NumPy 2.4.6`."""
    return f"OpenBLAS {_build()['version']} in NumPy {np.__version__}"


def _build() -> dict[str, str]:
    config = np.show_config(mode="dicts")
    found = config["Build Dependencies"]["blas"] if config else {}
    return {"name": str(found.get("name", "no BLAS")), "version": str(found.get("version", ""))}


def _require_openblas() -> None:
    name = _build()["name"]
    if "openblas" not in name:
        raise PeerAbsentError(f"this NumPy is built with {name}")


def _require_threads(threads: int, family: str | None) -> None:
    """Hold both libraries to so many; where NumPy's is elsewhere, the environment does."""
    for count in hold_threads(threads, family):
        if count != threads:
            raise PeerAbsentError(f"this OpenBLAS takes {count} threads, not {threads}")


@singledispatch
def _matrices(problem: Problem, operands: Operands) -> tuple[Array, Array, Array]:
    """A, B and C as BLAS sees them: views, no copies; one function for each operation."""
    raise PeerAbsentError(f"BLAS has no {problem.op}")


@_matrices.register
def _of_matmul(problem: Matmul, operands: Operands) -> tuple[Array, Array, Array]:
    a, b, c = (operands[name] for name in "ABC")
    a = a.swapaxes(-1, -2) if problem.transpose_a else a
    return a, b.swapaxes(-1, -2) if problem.transpose_b else b, c


@_matrices.register
def _of_convolution(problem: Conv2d, operands: Operands) -> tuple[Array, Array, Array]:
    a, b, c = (operands[name] for name in "ABC")
    if not _is_product(problem):
        raise PeerAbsentError("BLAS has no convolution")
    if not problem.has_channels_first:
        return a.reshape(-1, problem.ci), b.reshape(problem.ci, -1), c.reshape(-1, problem.co)
    pixels = problem.h * problem.w
    image, result = (x.reshape(problem.n, -1, pixels) for x in (a, c))
    return b.reshape(problem.co, problem.ci), image, result


def _is_product(problem: Conv2d) -> bool:
    """Whether a convolution is a matrix product without moving a byte."""
    ones = (problem.kh, problem.kw, problem.stride, problem.groups)
    return ones == (1, 1, 1, 1) and problem.pad == 0


def _passes(
    problem: Problem, operands: Operands, product: Array, c: Array
) -> list[Callable[[], object]]:
    """What comes after the product, in place."""
    passes: list[Callable[[], object]] = []
    if product is not c:
        passes.append(lambda: np.add(c, product, out=c))
    if "bias" in operands:
        nchw = problem.has_channels_first
        bias = operands["bias"][:, None] if nchw else operands["bias"]
        passes.append(lambda: np.add(c, bias, out=c))
    if problem.has_relu:
        passes.append(lambda: np.clip(c, 0, problem.ceiling, out=c))
    return passes
