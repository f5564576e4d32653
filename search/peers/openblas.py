"""NumPy's OpenBLAS through `np.matmul` into the problem's own C.

OpenBLAS chooses kernels by the processor's name when it loads, and takes AVX2 ones, at half the
speed, for names that it does not know. A runner's child therefore names the kernels of AVX-512 and
the number of threads in its environment (`tilewise.search.runner.runner.library_environment`).
"""

import re
from collections.abc import Callable
from functools import singledispatch
from typing import cast

import numpy as np

from tilewise.kernels.oracle.operands import Array, Operands
from tilewise.kernels.problem import Conv2d, Matmul, Problem
from tilewise.search.peers.variant import PeerAbsentError, Variant

BLAS_TYPES = ("f32", "f64")


def variants(problem: Problem, operands: Operands, threads: int) -> list[Variant]:
    """Return its way; bias, additions and relu are further passes, as its users write them.

    Raises PeerAbsentError if BLAS has no such product, or NumPy another library or number of
    threads.
    """
    _require_openblas(threads)
    if problem.quantised_weights:
        raise PeerAbsentError("BLAS has no quantised weights")
    if problem.element.name not in BLAS_TYPES:
        raise PeerAbsentError(f"BLAS has no {problem.element.name} product")
    if problem.function.is_smooth:
        raise PeerAbsentError(f"NumPy has no epilogue={problem.epilogue}")
    a, b, c = _matrices(problem, operands)
    product = np.empty_like(c) if problem.accumulates else c
    passes = _passes(problem, operands, product, c)

    def run(repeat: int) -> None:
        for _ in range(repeat):
            np.matmul(a, b, out=product)
            for one in passes:
                one()

    return [Variant("openblas", "matmul", run, lambda: operands["C"])]


def version() -> str:
    """Return a text such as `OpenBLAS 0.3.31.188.0 in NumPy 2.4.6`."""
    return f"OpenBLAS {_build()['version']} in NumPy {np.__version__}"


def _build() -> dict[str, str]:
    config = np.show_config(mode="dicts")
    found = config["Build Dependencies"]["blas"] if config else {}
    named = cast("dict[str, str]", found)
    return {"name": "no BLAS", "version": "", "openblas configuration": "", **named}


def _require_openblas(threads: int) -> None:
    build = _build()
    if "openblas" not in build["name"]:
        raise PeerAbsentError(f"this NumPy is built with {build['name']}")
    most = re.search(r"MAX_THREADS=(\d+)", build["openblas configuration"])
    if most and threads > int(most[1]):
        raise PeerAbsentError(f"this OpenBLAS takes {most[1]} threads, not {threads}")


@singledispatch
def _matrices(problem: Problem, operands: Operands) -> tuple[Array, Array, Array]:
    """Return A, B and C as views for BLAS; one function per operation."""
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
    """Return whether a convolution is a matrix product without copies."""
    ones = (problem.kh, problem.kw, *problem.strides, problem.groups)
    return set(ones) == {1} and not problem.is_padded


def _passes(
    problem: Problem, operands: Operands, product: Array, c: Array
) -> list[Callable[[], object]]:
    """Return the passes after the product, in place."""
    passes: list[Callable[[], object]] = []
    if product is not c:
        passes.append(lambda: np.add(c, product, out=c))
    if "bias" in operands:
        nchw = problem.has_channels_first
        bias = operands["bias"][:, None] if nchw else operands["bias"]
        passes.append(lambda: np.add(c, bias, out=c))
    if problem.add:
        passes.append(lambda: np.add(c, operands["add"].reshape(c.shape), out=c))
    if problem.has_relu:
        passes.append(lambda: np.clip(c, 0, problem.ceiling, out=c))
    return passes
