"""A tuned network that needs NumPy alone: `load().run(*arrays)`.

network.json names the model and the processor. Code, weights and this file belong together.
"""

import ctypes
import hashlib
import json
import mmap
import os
import platform
import re
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import cycle, islice, pairwise
from pathlib import Path
from statistics import median
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np

from tilewise.kernels.native.language.shared_words import BARRIER_WORDS
from tilewise.kernels.native.threads.pinning import usable_processors
from tilewise.kernels.native.threads.pool import ThreadPool

SCHEMA = "tilewise/network/1"
_SPELLED = {"sse3": "pni", "lzcnt": "abm", "bmi": "bmi1", "avx512vnni": "avx512_vnni",
            "avx512bf16": "avx512_bf16"}  # fmt: skip
"""Linux' names of extensions, where they are not LLVM's."""
_FIELDS = {"name": str, "features": list, "threads": int, "activations_bytes": int,
           "weights_bytes": int, "barrier": int, "parts": list, "inputs": list,
           "results": list, "sha256": dict}  # fmt: skip
_ADDRESS = ctypes.c_void_p
_LOADED: dict[str, str] = globals().get("_LOADED", {})
"""Digests of loaded files by their paths, also after a reload of this module."""


def load(folder: str | Path = Path(__file__).parent, *, mapped: bool = False) -> "Network":
    """Load the network of a folder, by default that of this file.

    With `mapped`, weights stay in the file and are shared between processes; only their size is
    checked. Otherwise they are read, into huge pages where possible, and fully checked.

    Raises RuntimeError if the machine cannot run the code, or a file is missing or damaged.
    """
    folder = Path(folder)
    about = _about(folder / "network.json")
    _check_machine(folder)
    digests = about["sha256"]
    code = _library(folder / "network.so", digests["network.so"])
    if not code[f"{about['name']}_supported"]():
        raise RuntimeError(f"{folder}: this machine lacks {_lacking(about['features'])}")
    size, digest = about["weights_bytes"], digests["weights.bin"]
    weights = _weights(folder / "weights.bin", size, digest, mapped)
    with _read(folder / "network.json"):
        return Network(about, code, weights)


class Network:
    """A network that can be run, once at a time by any thread.

    A forked process has a copy with its own threads and memory. `about` is network.json. Fill
    `inputs`, call the network, and read `results`, which last until the next run.
    """

    def __init__(self, about: dict[str, Any], code: ctypes.CDLL, weights: Any) -> None:
        self.about = about
        self.activations, self.weights = zeroed(about["activations_bytes"]), weights
        self.inputs = tuple(map(self._array, about["inputs"]))
        self.results = tuple(map(self._array, about["results"]))
        self._addresses = self.activations.ctypes.data, weights.ctypes.data
        self._ends = [0, *(int(part["end"]) for part in about["parts"])]
        self._code, self._steps = code, code[f"{about['name']}_steps"]
        self._steps.argtypes, self._steps.restype = [_ADDRESS] * 2 + [ctypes.c_int64] * 3, None
        self._locks: dict[int, threading.Lock] = {}
        self._pool = None if about["threads"] == 1 else self._made_pool()

    def run(self, *arguments: Any) -> tuple[Any, ...]:
        """Return new arrays with the results; raise ValueError for unsuitable arguments."""
        if len(arguments) != len(self.inputs):
            raise ValueError(f"{len(arguments)} arguments; the network takes {len(self.inputs)}")
        for number, (given, held) in enumerate(zip(arguments, self.inputs, strict=True)):
            array = np.asarray(given)
            if array.shape != held.shape or array.dtype != held.dtype:
                raise ValueError(f"argument {number} is {array.dtype}{list(array.shape)}, not "
                                 f"{held.dtype}{list(held.shape)}")  # fmt: skip
        with self._turn():
            for given, held in zip(arguments, self.inputs, strict=True):
                held[...] = given
            self._compute(0, self._ends[-1])
            return tuple(one.copy() for one in self.results)

    def __call__(self) -> None:
        """Compute `results` of `inputs`."""
        with self._turn():
            self._compute(0, self._ends[-1])

    def times(self, rounds: int) -> list[tuple[str, float]]:
        """Return the label of each part and the median microseconds of running it alone.

        A call adds about a microsecond to each. `results` are not those of `inputs` afterwards.
        """
        taken: list[list[float]] = [[] for _ in self.about["parts"]]
        with self._turn():
            for _ in range(rounds):
                for (first, end), times in zip(pairwise(self._ends), taken, strict=True):
                    begin = time.perf_counter()
                    self._compute(first, end)
                    times.append(1e6 * (time.perf_counter() - begin))
        labels = [part["label"] for part in self.about["parts"]]
        return list(zip(labels, map(median, taken), strict=True))

    def _turn(self) -> threading.Lock:
        """Return the lock of this process; a fork must not wait for its parent's threads."""
        process = os.getpid()
        return self._locks.get(process) or self._locks.setdefault(process, threading.Lock())

    def _compute(self, first: int, end: int) -> None:
        if self._pool is None:
            self._steps(*self._addresses, 0, first, end)
            return
        if (first, end) not in self._tables:  # one that helpers may still read is never changed
            threads = range(self.about["threads"])
            rows = [np.array([*self._addresses, part, first, end]) for part in threads]
            self._tables[first, end] = rows, [row.ctypes.data for row in rows]
        self._pool.run(self._share, self._tables[first, end][1])

    def _made_pool(self) -> ThreadPool:
        name, whole = self.about["name"], ctypes.c_int64
        share, serve, publish = (self._code[f"{name}_{of}"] for of in ("share", "help", "tell"))
        serve.argtypes, serve.restype = [whole] * 4, whole
        publish.argtypes, publish.restype = [whole] * 2, None
        self._share = ctypes.cast(share, _ADDRESS).value or 0
        self._tables: dict[tuple[int, int], Any] = {}
        kept = self._code, self.activations, self.weights, self._tables
        at = self.about["barrier"]
        barrier = self.activations[at : at + 8 * BARRIER_WORDS].view(np.int64)
        processors = list(islice(cycle(usable_processors()), self.about["threads"]))
        pool = ThreadPool(processors, barrier, serve, publish, kept)
        weakref.finalize(self, pool.stop)
        return pool

    def _array(self, about: dict[str, Any]) -> Any:
        dtype = np.dtype(about["dtype"])
        size = dtype.itemsize * int(np.prod(about["shape"], dtype=np.int64))
        held = self.activations[about["offset"] : about["offset"] + size]
        return held.view(dtype).reshape(about["shape"])


@contextmanager
def _read(path: Path) -> Iterator[None]:
    """Name a file in errors of reading or using it."""
    try:
        yield
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise _damaged(path, f"cannot be read ({type(error).__name__}: {error})") from error


def _damaged(path: Path, what: str) -> RuntimeError:
    return RuntimeError(
        f"{path} {what}; write the folder again by `tilewise model MODEL --as native -o DIR`"
    )


def _about(path: Path) -> dict[str, Any]:
    with _read(path):
        about: dict[str, Any] = json.loads(path.read_text("utf-8"))
        schema = about.get("schema")
    if schema != SCHEMA:
        raise RuntimeError(f"{path}: schema {schema!r} is not {SCHEMA}")
    with _read(path):
        for name, kind in _FIELDS.items():
            if not isinstance(about[name], kind):
                raise TypeError(f"{name} is {about[name]!r}")
        for name in ("network.so", "weights.bin"):
            bytes.fromhex(about["sha256"][name])
    return about


def _library(path: Path, digest: str) -> ctypes.CDLL:
    """Load the code after checking its digest."""
    with _read(path):
        code = path.read_bytes()
    if hashlib.sha256(code).hexdigest() != digest:
        raise _damaged(path, "is damaged, or of another folder")
    place = str(path.absolute())
    with _read(path):
        if _LOADED.setdefault(place, digest) == digest:
            return ctypes.CDLL(place)
        # The folder was written again: by its name `dlopen` would return what is loaded already.
        with NamedTemporaryFile(suffix=".so") as file:
            file.write(code)
            file.flush()
            return ctypes.CDLL(file.name)


def _check_machine(folder: Path) -> None:
    here = sys.platform, platform.machine()
    if here != ("linux", "x86_64"):
        raise RuntimeError(f"{folder} is for linux x86_64, and this is {' '.join(here)}")


def _lacking(features: Sequence[str]) -> str:
    """Return the missing extensions as far as Linux names them; otherwise all."""
    if not features:
        return "what the code needs"
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    known = {word for line in lines if line.startswith("flags") for word in line.split()}
    spelled = {one: re.sub(r"[.-]", "_", _SPELLED.get(one, one)) for one in features}
    lacking = [one for one in features if spelled[one] not in known]
    if known and not lacking and "amx-tile" in features:
        return "permission to use tile registers"
    return ", ".join(lacking) if known and lacking else f"one of {', '.join(features)}"


def _weights(path: Path, size: int, digest: str, mapped: bool) -> Any:
    with _read(path):
        found = path.stat().st_size
    if found != size:
        raise _damaged(path, f"has {found} bytes, not {size}: it is damaged")
    with _read(path):
        if mapped and size:
            return np.memmap(path, np.uint8, "r")
        memory = zeroed(size)
        with path.open("rb") as file:
            file.readinto(memory.data)
    if hashlib.sha256(memory.data).hexdigest() != digest:
        raise _damaged(path, "is damaged, or of another folder")
    return memory


def zeroed(size: int) -> Any:
    """Return zeroed memory that a fork copies."""
    pages = mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # of a system that is built without them
            pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, np.uint8)[:size]
