"""NumPy's OpenBLAS through `np.matmul` into the problem's own C.

OpenBLAS chooses kernels by the processor's name and takes AVX2 ones, at half the speed, for unknown
names or if `OPENBLAS_CORETYPE` says so when the library loads. To measure it at its best, a copy of
the library is loaded with the family that the processor supports.
"""

import ctypes
import functools
import os
import shutil
from collections.abc import Callable
from functools import singledispatch
from pathlib import Path

import numpy as np

from tilewise.kernels.oracle.operands import Array, Operands
from tilewise.kernels.problem import Conv2d, Matmul, Problem
from tilewise.kernels.system.files import cache_dir
from tilewise.kernels.target import Target, detect
from tilewise.search.peers.variant import PeerAbsentError, Variant

VARIABLE = "OPENBLAS_CORETYPE"
ROW_MAJOR, PLAIN, TRANSPOSED = 101, 111, 112
_PREFIX, _SUFFIX = "scipy_", "64_"
_SCALARS = {4: ctypes.c_float, 8: ctypes.c_double}
_NAMES = {4: "cblas_sgemm", 8: "cblas_dgemm"}
_SIZE = ctypes.c_int64


def better_family(target: Target) -> str | None:
    """Return the family that the processor supports, if NumPy's OpenBLAS did not choose it."""
    if "avx512f" not in target.features:
        return None
    library = _library_path()
    if library is None or _core_name(ctypes.CDLL(str(library))) == "SkylakeX":
        return None
    return "SkylakeX"


def hold_threads(threads: int, family: str | None) -> list[int]:
    """Set the threads of NumPy's OpenBLAS and the copy; return what they took."""
    found = libraries(family)
    for library in found:
        getattr(library, f"{_PREFIX}openblas_set_num_threads{_SUFFIX}")(threads)
    return [threads_of(library) for library in found]


def libraries(family: str | None) -> list[ctypes.CDLL]:
    """Return NumPy's OpenBLAS and the copy of `family`, as far as available."""
    path = _library_path()
    own = ctypes.CDLL(str(path)) if path else None
    copy = _loaded(family) if family else None
    return [library for library in (own, copy) if library is not None]


def threads_of(library: ctypes.CDLL) -> int:
    """Return the number of threads of a library."""
    return int(getattr(library, f"{_PREFIX}openblas_get_num_threads{_SUFFIX}")())


def product_of(a: Array, b: Array, c: Array, family: str) -> Callable[[], None] | None:
    """Return a function that computes c = a @ b by a family, if it is available.

    Operands are matrices or stacks of them, f32 or f64, contiguous in one of the last two dims; c
    is contiguous.
    """
    library = _loaded(family)
    if library is None:
        return None
    gemm = getattr(library, f"{_PREFIX}{_NAMES[c.itemsize]}{_SUFFIX}")
    scalar = _SCALARS[c.itemsize]
    one, zero = scalar(1.0), scalar(0.0)
    calls = []
    for i in range(c.shape[0] if c.ndim == 3 else 1):
        x, y, z = (array[i] if array.ndim == 3 else array for array in (a, b, c))
        sizes = [_SIZE(n) for n in (z.shape[0], z.shape[1], x.shape[1])]
        (x_order, x_at, x_row), (y_order, y_at, y_row) = _matrix(x), _matrix(y)
        _, z_at, z_row = _matrix(z)
        calls.append(
            (ROW_MAJOR, x_order, y_order, *sizes, one, x_at, x_row, y_at, y_row, zero, z_at, z_row)
        )

    def run() -> None:
        for arguments in calls:
            gemm(*arguments)

    return run


def _matrix(array: Array) -> tuple[int, ctypes.c_void_p, ctypes.c_int64]:
    """Return order, address and leading dimension for CBLAS."""
    rows, cols = (stride // array.itemsize for stride in array.strides)
    address = ctypes.c_void_p(array.ctypes.data)
    if cols == 1 or array.shape[1] == 1:
        return PLAIN, address, _SIZE(max(rows, array.shape[1]))
    return TRANSPOSED, address, _SIZE(max(cols, array.shape[0]))


@functools.cache
def _loaded(family: str) -> ctypes.CDLL | None:
    """Return the copy loaded with this family; None without NumPy's library."""
    source = _library_path()
    if source is None:
        return None
    copy = cache_dir() / "peers" / f"{family}-{source.name}"
    if not copy.exists():
        copy.parent.mkdir(parents=True, exist_ok=True)
        draft = copy.with_suffix(f".{os.getpid()}")
        shutil.copy(source, draft)
        draft.replace(copy)
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = family
    try:
        library = ctypes.CDLL(str(copy))
    except OSError:
        return None
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before
    return library if _core_name(library) == family else None


@functools.cache
def _library_path() -> Path | None:
    """Return the OpenBLAS in the NumPy wheel."""
    folder = Path(np.__file__).parent.parent / "numpy.libs"
    return next(folder.glob("libscipy_openblas64_*"), None)


def _core_name(library: ctypes.CDLL) -> str:
    try:
        name = getattr(library, f"{_PREFIX}openblas_get_corename{_SUFFIX}")
    except AttributeError:
        return ""
    name.restype = ctypes.c_char_p
    return bytes(name() or b"").decode()


BLAS_TYPES = ("f32", "f64")


def variants(problem: Problem, operands: Operands, threads: int) -> list[Variant]:
    """Return its ways; bias, additions and relu are further passes, as its users write them.

    An unknown processor adds a way with another kernel family. Raises PeerAbsentError if BLAS has
    no such product or number of threads, or NumPy another library.
    """
    _require_openblas()
    if problem.quantised_weights:
        raise PeerAbsentError("BLAS has no quantised weights")
    if problem.element.name not in BLAS_TYPES:
        raise PeerAbsentError(f"BLAS has no {problem.element.name} product")
    if problem.function.is_smooth:
        raise PeerAbsentError(f"NumPy has no epilogue={problem.epilogue}")
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
    other = product_of(a, b, product, family) if family else None
    return [*ways, way(f"{family} kernels", other)] if other else ways


def version() -> str:
    """Return a text such as `OpenBLAS 0.3.31.188.0 in NumPy 2.4.6`."""
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
    """Set the threads of both libraries; the environment does for any other."""
    for count in hold_threads(threads, family):
        if count != threads:
            raise PeerAbsentError(f"this OpenBLAS takes {count} threads, not {threads}")


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
        passes.append(lambda: np.add(c, operands["add"], out=c))
    if problem.has_relu:
        passes.append(lambda: np.clip(c, 0, problem.ceiling, out=c))
    return passes
