"""A second OpenBLAS in the same process, held to another family of kernels.

OpenBLAS chooses its kernels by the processor's name, and takes AVX2 ones, at half the
speed, where it does not know the name or where the environment says so
(`OPENBLAS_CORETYPE`, read when the library loads). A peer should be measured at its best,
so NumPy's library is loaded once more, from a copy, with the family chosen by what the
processor can do.
"""

import ctypes
import functools
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tilewise.kernels.oracle.operands import Array
from tilewise.kernels.system.cache_folder import cache_dir
from tilewise.kernels.target import Target

VARIABLE = "OPENBLAS_CORETYPE"
ROW_MAJOR, PLAIN, TRANSPOSED = 101, 111, 112
_PREFIX, _SUFFIX = "scipy_", "64_"
_SCALARS = {4: ctypes.c_float, 8: ctypes.c_double}
_NAMES = {4: "cblas_sgemm", 8: "cblas_dgemm"}
_SIZE = ctypes.c_int64


def better_family(target: Target) -> str | None:
    """The family that the processor can run, if NumPy's OpenBLAS did not choose it itself."""
    if "avx512f" not in target.features:
        return None
    library = _library_path()
    if library is None or _core_name(ctypes.CDLL(str(library))) == "SkylakeX":
        return None
    return "SkylakeX"


def hold_threads(threads: int, family: str | None) -> list[int]:
    """Hold NumPy's OpenBLAS, and the copy of `family` if given, to so many threads.

    Returns the numbers that they took; none where NumPy's library is elsewhere.
    """
    found = libraries(family)
    for library in found:
        getattr(library, f"{_PREFIX}openblas_set_num_threads{_SUFFIX}")(threads)
    return [threads_of(library) for library in found]


def libraries(family: str | None) -> list[ctypes.CDLL]:
    """NumPy's OpenBLAS and the copy of `family`, as far as they can be had."""
    path = _library_path()
    own = ctypes.CDLL(str(path)) if path else None
    copy = _loaded(family) if family else None
    return [library for library in (own, copy) if library is not None]


def threads_of(library: ctypes.CDLL) -> int:
    """How many threads a library now uses."""
    return int(getattr(library, f"{_PREFIX}openblas_get_num_threads{_SUFFIX}")())


def product(a: Array, b: Array, c: Array, family: str) -> Callable[[], None] | None:
    """A function that computes c = a @ b by `family`; None where it cannot be had.

    Args:
        a: a matrix, or a stack of them; f32 or f64, contiguous along one of its last two dims.
        b: the same.
        c: the result, contiguous; its first dim is the stack's.
        family: as OpenBLAS spells it.
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
    """Order, address and leading dimension, as CBLAS wants them."""
    rows, cols = (stride // array.itemsize for stride in array.strides)
    address = ctypes.c_void_p(array.ctypes.data)
    if cols == 1 or array.shape[1] == 1:
        return PLAIN, address, _SIZE(max(rows, array.shape[1]))
    return TRANSPOSED, address, _SIZE(max(cols, array.shape[0]))


@functools.cache
def _loaded(family: str) -> ctypes.CDLL | None:
    """The copy that was loaded with this family; None where NumPy's library is elsewhere."""
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
    """The OpenBLAS that a NumPy wheel carries beside it."""
    folder = Path(np.__file__).parent.parent / "numpy.libs"
    return next(folder.glob("libscipy_openblas64_*"), None)


def _core_name(library: ctypes.CDLL) -> str:
    try:
        name = getattr(library, f"{_PREFIX}openblas_get_corename{_SUFFIX}")
    except AttributeError:
        return ""
    name.restype = ctypes.c_char_p
    return bytes(name() or b"").decode()
