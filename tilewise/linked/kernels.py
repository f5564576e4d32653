"""Kernels of a store or a service: looked up, cached on disk by hash, loaded into this process."""

import ctypes
import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tilewise.errors import MissingError, TilewiseError
from tilewise.kernels.problem import Problem, ProblemRange, parse_any
from tilewise.kernels.system.children import ONE_THREAD
from tilewise.kernels.system.files import read_regular, write_whole
from tilewise.kernels.system.toolchain import identity
from tilewise.linked.libraries import cache_folder, link
from tilewise.search.ranges.result import contains
from tilewise.version import VERSION

if TYPE_CHECKING:
    from tilewise.backends.choose import Backend
    from tilewise.schema.results import ObjectFiles
    from tilewise.search.records import CacheMode

Shim = Callable[[], ctypes.CDLL]
"""Loads a library that includes `kernels.h`, and calls the kernels that it knows."""

_log = logging.getLogger("tilewise.linked")


@cache
def warn_once(message: str) -> None:
    """Log a warning, once per process: models are compiled in many graphs."""
    _log.warning("%s", message)


@contextmanager
def warning(what: str) -> Iterator[None]:
    """Log an error as `warn_once` does; the program goes on without."""
    try:
        yield
    except Exception as error:  # a search may fail in any way
        warn_once(f"{what}: {line_of(error)}")


@dataclass(frozen=True)
class Kernel:
    """A kernel that is loaded into this process.

    Attributes:
        problem: a problem, or a range.
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

    @cached_property
    def wanted(self) -> Problem | ProblemRange:
        """Return the problem or the range."""
        return parse_any(self.problem)

    def sizes_of(self, keys: Mapping[str, Any]) -> list[Any]:
        """Return the sizes that a call takes, by the keys of its problem; only a range has some."""
        wanted = self.wanted
        return [keys[dim] for dim in wanted.dims] if isinstance(wanted, ProblemRange) else []


@dataclass(frozen=True)
class Source:
    """Where kernels come from: a store's URL or a service's, by default as the environment says.

    Attributes:
        trials: schedules tried for a problem that is not stored; 0 for no search.
        threads: that kernels are tuned for.
        accuracy: of the problems, where they have the key.
        tune: `now` searches before a graph runs, `background` while it runs without kernels.
        sizes: smallest and largest size of a dynamic dim that has no bounds.
    """

    store: str | None = None
    server: str | None = None
    trials: int = 0
    threads: int = 1
    accuracy: str = "standard"
    tune: str = "now"
    sizes: tuple[int, int] = (1, 64)

    @contextmanager
    def open(self, shim: Shim, choices: Sequence[Sequence[str]]) -> "Iterator[Kernels]":
        """Look up problems or ranges, each op's from the widest to the narrowest.

        Missing ones are searched if that is allowed. `shim` is to call the kernels. If the store or
        the service fails, the kernels are those of the cache folder.
        """
        from tilewise.backends.choose import open_backend

        # A search here sets limits of threads for its children; other children keep theirs.
        before = {name: os.environ[name] for name in ONE_THREAD if name in os.environ}
        with ExitStack() as stack:
            try:
                backend: Backend | None = None
                if any(choices):
                    backend = open_backend(self.server, self.store)
                    stack.enter_context(backend)
                kernels = Kernels(self, backend, shim)
                kernels.look_up(choices)
            except Exception as error:  # a store or a service may fail in any way
                warn_once(f"only kernels of the cache folder are used: {line_of(error)}")
                kernels = Kernels(self, None, shim)
            finally:
                for name in ONE_THREAD:
                    os.environ.pop(name, None)
                os.environ.update(before)
            yield kernels


class _Stored(NamedTuple):
    """A stored problem or range, its schedules and toolchain, and the caches that they are for."""

    problem: str
    schedules: str
    cache: str


class Kernels:
    """The kernels of an open store or service; without one, those of the cache folder."""

    def __init__(self, source: Source, backend: "Backend | None", shim: Shim) -> None:
        self._backend, self._trials, self._shim = backend, source.trials, shim
        self._target = target_of(source.threads)
        self._found: dict[str, _Stored] = {}
        host, _, rest = self._target.partition(",")
        self._files = {
            one.problem: path
            for path, one in ({} if backend else read_kernels()).items()
            if one.target == self._target or (host == "cpu:host" and one.target.endswith(rest))
        }

    def look_up(self, choices: Sequence[Sequence[str]]) -> None:
        """Look up problems as `Source.open` does."""
        self._fetch({problem for problems in choices for problem in problems})
        absent = {one[0]: None for one in choices if one and one[0] not in self._found}
        if not self._trials or self._backend is None:
            return
        from tilewise.search.records import TuneRequest

        for problem in absent:
            request = TuneRequest(self._trials, cache="cold")
            with warning(f"{problem}: not tuned"):  # such as a range that no code serves
                self._backend.tune(problem, self._target, request, lambda _trial: None)
        self._fetch(absent)

    def _fetch(self, problems: Collection[str]) -> None:
        # In a model, other layers evict the weights: kernels for cold caches come first.
        for mode in ("cold", None):
            self._fetch_mode([one for one in problems if one not in self._found], mode)

    def _fetch_mode(self, problems: Sequence[str], mode: "CacheMode | None") -> None:
        backend = self._backend
        if backend is None:
            return
        ranges = {one: one for one in problems if isinstance(parse_any(one), ProblemRange)}
        sizes = [one for one in problems if one not in ranges]
        found = backend.look_up(sizes, self._target, (), {}, "range", cache=mode) if sizes else ()
        for one in found:
            result, match = one.result, one.result and one.result.match
            if match and match.range is not None:
                ranges[one.problem] = match.range
            elif result and match and match.kind != "processor":
                schedule = f"{result.target} {result.best.hash} {result.toolchain} {match.differs}"
                self._found[one.problem] = _Stored(one.problem, schedule, result.cache)
        for problem, wanted in ranges.items():
            with suppress(MissingError):
                whole = backend.show(wanted, self._target, mode, match="range")
                facts = ("target", "variants", "spans", "toolchain", "stale")
                schedules = json.dumps([whole[name] for name in facts])
                self._found[problem] = _Stored(whole["problem"], schedules, whole["cache"])

    def load(self, problem: str) -> Kernel | None:
        """Return the kernel of a problem or a range, or that of a range that contains it, loaded.

        Return None if none is stored or it cannot run here.
        """
        if self._backend is None:
            wanted = parse_any(problem)
            holding = (path for one, path in self._files.items() if _holds(one, wanted))
            path = self._files.get(problem) or next(holding, None)
            kernel = None if path is None else _cached(path, "it is not used")
        elif (found := self._found.get(problem)) is None:
            return None
        else:
            named = hashlib.sha256(f"{found.problem} {found.schedules}".encode()).hexdigest()[:32]
            path = cache_folder() / f"kernel-{_maker()}-{named}.so"
            mode: CacheMode = "cold" if found.cache == "cold" else "hot"
            made = self._backend.object_files
            kernel = _cached(path) or _write(path, made(found.problem, self._target, mode))
        return kernel if path and kernel and _is_loaded(path, kernel, self._shim) else None


def target_of(threads: int) -> str:
    """Return this processor as a target; a service would take `host` for its own."""
    try:
        from tilewise.kernels.target import detect

        return detect().with_threads(threads).canonical
    except ModuleNotFoundError:  # without the extra `kernels` only the service can name it
        return f"cpu:host,threads={threads}"


def line_of(error: Exception) -> str:
    """Return the message of an error as one line."""
    return " ".join(str(error).split()) or type(error).__name__


def _holds(stored: str, wanted: Problem | ProblemRange) -> bool:
    """Return whether a stored problem is a range that contains another, or a range."""
    problems = parse_any(stored)
    return isinstance(problems, ProblemRange) and contains(problems, wanted)


def _maker() -> str:
    """Return a digest of the toolchain and the version that make and call kernels."""
    return hashlib.sha256(f"{identity()} {VERSION}".encode()).hexdigest()[:8]


def read_kernels() -> dict[Path, Kernel]:
    """Return the kernels of the cache folder by the files of their code, the newest last."""
    found = {}
    files = cache_folder().glob(f"kernel-{_maker()}-*.json")
    for path in sorted(files, key=lambda one: one.stat().st_mtime_ns):
        with suppress(OSError, ValueError, TypeError):  # a file that is damaged
            found[path.with_suffix(".so")] = Kernel(**json.loads(read_regular(path)))
    return found


def load_folder(folder: Path, shim: Shim) -> None:
    """Load all kernels of a folder.

    Raises:
        TilewiseError: a file is damaged, or this processor cannot run a kernel.
    """
    for path in folder.glob("kernel-*.so"):
        kernel = _cached(path, "it is not used")
        if kernel is None or not _is_loaded(path, kernel, shim):
            raise TilewiseError(f"kernel file {path} cannot be used; compile the package again")


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
    one = kernel.wanted
    accumulates = int((one.smallest if isinstance(one, ProblemRange) else one).accumulates)
    numbers = [ctypes.c_int64(size) for size in sizes]
    shim().tilewise_register(kernel.symbol.encode(), *addresses, *numbers, accumulates)
    return True
