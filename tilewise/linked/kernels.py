"""Kernels of a store or a service: looked up, cached on disk by hash, loaded into this process."""

import ctypes
import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tilewise.errors import TilewiseError
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.system.children import ONE_THREAD
from tilewise.kernels.system.files import read_regular, write_whole
from tilewise.linked.libraries import cache_folder, link

if TYPE_CHECKING:
    from tilewise.backends.choose import Backend
    from tilewise.schema.results import ObjectFiles, StoredResult
    from tilewise.search.records import CacheMode

Shim = Callable[[], ctypes.CDLL]
"""Loads a library that includes `kernels.h`, and calls the kernels that it knows."""

_log = logging.getLogger("tilewise.linked")


@cache
def warn_once(message: str) -> None:
    """Log a warning, once per process: models are compiled in many graphs."""
    _log.warning("%s", message)


@dataclass(frozen=True)
class Kernel:
    """A kernel that is loaded into this process.

    Attributes:
        symbol: by which a shim knows it.
        sha256: of its shared library.
    """

    problem: str
    target: str
    symbol: str
    scratch_bytes: int
    packed_bytes: int
    parts: int
    sha256: str


@dataclass(frozen=True)
class Source:
    """Where kernels come from: a store's URL or a service's, by default as the environment says.

    Attributes:
        trials: schedules tried for a problem that is not stored; 0 for no search.
        threads: that kernels are tuned for.
        accuracy: of the problems, where they have the key.
        tune: `now` searches before a graph runs, `background` while it runs without kernels.
    """

    store: str | None = None
    server: str | None = None
    trials: int = 0
    threads: int = 1
    accuracy: str = "standard"
    tune: str = "now"

    @contextmanager
    def open(self, shim: Shim) -> "Iterator[Kernels]":
        """Open the store or service; `shim` is to call the kernels."""
        from tilewise.backends.choose import open_backend

        # A search here sets limits of threads for its children; other children keep theirs.
        before = {name: os.environ.get(name) for name in ONE_THREAD}
        try:
            with open_backend(self.server, self.store) as backend:
                yield Kernels(self, backend, shim)
        finally:
            for name, value in before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value


class Kernels:
    """The kernels of an open store or service; without one, those of the cache folder."""

    def __init__(self, source: Source, backend: "Backend | None", shim: Shim) -> None:
        self._backend, self._trials, self._shim = backend, source.trials, shim
        self._target = target_of(source.threads)
        self._found: dict[str, StoredResult] = {}
        self._files = {} if backend is not None else _files_by_problem(self._target)

    def look_up(self, choices: Sequence[Sequence[str]]) -> None:
        """Look up problems, each op's from the widest to the narrowest; search if allowed."""
        backend = self._backend
        self._fetch([problem for problems in choices for problem in problems])
        if not self._trials or backend is None:
            return
        from tilewise.search.records import TuneRequest

        absent = [one[0] for one in choices if one and one[0] not in self._found]
        for problem in dict.fromkeys(absent):
            request = TuneRequest(self._trials, cache="cold")
            backend.tune(problem, self._target, request, lambda _trial: None)
        self._fetch(absent)

    def _fetch(self, problems: Sequence[str]) -> None:
        # In a model, other layers evict the weights: kernels for cold caches come first.
        for mode in ("cold", None):
            absent = [one for one in dict.fromkeys(problems) if one not in self._found]
            if absent and self._backend is not None:
                found = self._backend.look_up(absent, self._target, (), {}, cache=mode)
                self._found |= {one.problem: one.result for one in found if one.result}

    def load(self, problem: str) -> Kernel | None:
        """Return the kernel of a problem, loaded; None if none is stored or it cannot run here."""
        found = self._found.get(problem)
        if self._backend is None or found is None:
            path = self._files.get(problem)
            kernel = None if path is None else _cached(path, "it is not used")
        else:
            named = f"{problem} {found.target} {found.best.hash}"
            path = cache_folder() / f"kernel-{hashlib.sha256(named.encode()).hexdigest()[:32]}.so"
            made, is_cold = self._backend.object_files, found.cache == "cold"
            mode: CacheMode = "cold" if is_cold else "hot"
            kernel = _cached(path) or _write(path, made(problem, self._target, mode))
        return kernel if path and kernel and _is_loaded(path, kernel, self._shim) else None


def target_of(threads: int) -> str:
    """Return this processor as a target; a service would take `host` for its own."""
    try:
        from tilewise.kernels.target import detect

        return detect().with_threads(threads).canonical
    except ModuleNotFoundError:  # without the extra `kernels` only the service can name it
        return f"cpu:host,threads={threads}"


def _files_by_problem(target: str) -> dict[str, Path]:
    """Return the kernels on disk for a target; of several of one problem the newest."""
    host, _, rest = target.partition(",")
    found: dict[str, Path] = {}
    for path in sorted(
        cache_folder().glob("kernel-*.json"), key=lambda one: one.stat().st_mtime_ns
    ):
        with suppress(OSError, ValueError, TypeError):  # a file that is damaged
            kernel = Kernel(**json.loads(read_regular(path)))
            if kernel.target == target or (host == "cpu:host" and kernel.target.endswith(rest)):
                found[kernel.problem] = path.with_suffix(".so")
    return found


def _cached(path: Path, otherwise: str = "it is made again") -> Kernel | None:
    """Return a kernel of the disk, unless a file is absent or not as it was written."""
    try:
        kernel = Kernel(**json.loads(read_regular(path.with_suffix(".json"))))
        found = hashlib.sha256(read_regular(path)).hexdigest()
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        warn_once(f"kernel file {path}: {error}; {otherwise}")
        return None
    if found != kernel.sha256:
        warn_once(f"kernel file {path}: sha256 is {found}, not {kernel.sha256}; {otherwise}")
        return None
    return kernel


def _write(path: Path, files: "ObjectFiles") -> Kernel:
    """Link the object of a kernel, and write it with its description."""
    with tempfile.NamedTemporaryFile(suffix=".o", dir=path.parent) as file:
        file.write(files.object_bytes)
        file.flush()
        link(["-nostdlib", file.name], path)
    sha256 = hashlib.sha256(read_regular(path)).hexdigest()
    sizes = (files.scratch_bytes, files.packed_bytes, files.parts)
    kernel = Kernel(files.problem, files.target, files.symbol, *sizes, sha256)
    write_whole(path.with_suffix(".json"), json.dumps(asdict(kernel), indent=2).encode())
    return kernel


@cache
def _is_loaded(path: Path, kernel: Kernel, shim: Shim) -> bool:
    """Register the kernel of a shared library; return False if this processor cannot run it."""
    try:
        code = ctypes.CDLL(str(path))
    except OSError as error:
        raise TilewiseError(f"kernel file {path}: {error}") from error
    if not code[f"{kernel.symbol}_supported"]():
        warn_once(f"{kernel.problem}: this processor cannot run the kernel {kernel.symbol}")
        return False
    ends = ("", "_part", "_prepare" if kernel.packed_bytes else "")
    addresses = [ctypes.cast(code[f"{kernel.symbol}{end}"], ctypes.c_void_p) for end in ends]
    sizes = (kernel.scratch_bytes, kernel.packed_bytes, kernel.parts)
    accumulates = int(parse_problem(kernel.problem).accumulates)
    numbers = [ctypes.c_int64(size) for size in sizes]
    shim().tilewise_register(kernel.symbol.encode(), *addresses, *numbers, accumulates)
    return True
