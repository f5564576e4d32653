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
from typing import TYPE_CHECKING, Any

from tilewise.errors import MissingError, NoAnswerError, TilewiseError
from tilewise.kernels.problem import Problem, ProblemRange, parse_any
from tilewise.kernels.system.children import ONE_THREAD
from tilewise.kernels.system.files import read_regular, write_whole
from tilewise.kernels.system.toolchain import identity
from tilewise.linked.libraries import cache_folder, link
from tilewise.search.ranges.result import contains
from tilewise.search.records import CacheMode, TuneRequest
from tilewise.version import VERSION

if TYPE_CHECKING:
    from tilewise.backends.choose import Backend
    from tilewise.schema.results import ObjectFiles

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
    except NoAnswerError:
        raise
    except Exception as error:  # a search may fail in any way
        warn_once(f"{what}: {line_of(error)}")


@dataclass(frozen=True)
class Kernel:
    """A kernel that is loaded into this process.

    Attributes:
        problem: a problem, or a range.
        symbol: of its code.
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

    @property
    def name(self) -> str:
        """Return what shims call it: code of another version may have the same symbol."""
        return f"{self.symbol}_{self.sha256[:12]}"

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the result; calls of a range give theirs."""
        wanted = self.wanted
        return () if isinstance(wanted, ProblemRange) else wanted.operand_shapes["C"]

    def sizes_of(self, keys: Mapping[str, Any]) -> list[Any]:
        """Return the sizes that a call takes, by the keys of its problem; only a range has some."""
        wanted = self.wanted
        return [keys[dim] for dim in wanted.dims] if isinstance(wanted, ProblemRange) else []


loaded: dict[str, Kernel] = {}
"""The kernels that shims call, by name."""


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
            kernels = Kernels(self, shim)
            try:
                if any(choices):
                    backend = open_backend(self.server, self.store)
                    stack.enter_context(backend)
                    kernels.look_up(backend, choices)
            except Exception as error:  # a store or a service may fail in any way
                kernels.use_folder(error)
            finally:
                for name in ONE_THREAD:
                    os.environ.pop(name, None)
                os.environ.update(before)
            yield kernels


class Kernels:
    """The kernels of an open store or service, or those of the cache folder if it fails.

    Attributes:
        found: by problem or range: what is stored for it, a text of its schedules, their caches.
        files: of kernels in the cache folder, if these are used.
        absent: the widest problems of ops, where they are not stored.
    """

    def __init__(self, source: Source, shim: Shim) -> None:
        self._trials, self._shim = source.trials, shim
        self._target = target_of(source.threads)
        self._backend: Backend | None = None
        self.found: dict[str, tuple[str, str, Any]] = {}
        self.files: dict[Problem | ProblemRange, Path] = {}
        self.absent: list[str] = []

    def use_folder(self, error: Exception) -> None:
        """Use the kernels of the cache folder from now on, since the store or service failed."""
        warn_once(f"only kernels of the cache folder are used: {line_of(error)}")
        self._backend, self.found, self.absent = None, {}, []
        host, _, rest = self._target.partition(",")
        self.files = {
            one.wanted: path
            for path, one in read_kernels().items()
            if one.target == self._target or (host == "cpu:host" and rest in one.target.split(","))
        }

    def look_up(self, backend: "Backend", choices: Sequence[Sequence[str]]) -> None:
        """Look up problems as `Source.open` does."""
        self._backend = backend
        self._fetch(backend, {problem for problems in choices for problem in problems})
        widest = dict.fromkeys(problems[0] for problems in choices if problems)
        self.absent = [one for one in widest if one not in self.found]
        if self._trials:
            request = TuneRequest(self._trials, cache="cold")
            for problem in self.absent:
                with warning(f"{problem}: not tuned"):  # such as a range that no code serves
                    backend.tune(problem, self._target, request, lambda _trial: None)
            self._fetch(backend, self.absent)

    def _fetch(
        self, backend: "Backend", problems: Collection[str], mode: CacheMode | None = "cold"
    ) -> None:
        missing = [one for one in problems if one not in self.found]
        ranges = {one: one for one in missing if isinstance(parse_any(one), ProblemRange)}
        sizes = [one for one in missing if one not in ranges]
        found = backend.look_up(sizes, self._target, (), {}, "range", cache=mode) if sizes else ()
        for one in found:
            result, match = one.result, one.result and one.result.match
            if match and match.range is not None:
                ranges[one.problem] = match.range
            elif result and match and match.kind != "processor":
                schedule = f"{result.target} {result.best.hash} {result.toolchain} {match.differs}"
                self.found[one.problem] = one.problem, schedule, result.cache
        for problem, wanted in ranges.items():
            with suppress(MissingError):
                whole = backend.show(wanted, self._target, mode, match="range")
                facts = ("target", "variants", "spans", "toolchain", "stale")
                schedules = json.dumps([whole[name] for name in facts])
                self.found[problem] = whole["problem"], schedules, whole["cache"]
        if mode:  # kernels for cold caches came first: in a model, other layers evict the weights
            self._fetch(backend, problems, None)

    def load(self, problem: str) -> Kernel | None:
        """Return the kernel of a problem or a range, or that of a range that contains it, loaded.

        Return None if none is stored or it cannot run here.
        """
        path, kernel = None, None
        if self._backend is not None and problem in self.found:
            stored, schedules, mode = self.found[problem]
            named = hashlib.sha256(f"{stored} {schedules}".encode()).hexdigest()[:32]
            path = cache_folder() / f"kernel-{_maker()}-{named}.so"
            made = self._backend.object_files
            try:
                kernel = _cached(path) or _write(path, made(stored, self._target, mode))
            except NoAnswerError as error:
                self.use_folder(error)
        if self._backend is None:
            wanted = parse_any(problem)
            ranges = [one for one in self.files if isinstance(one, ProblemRange)]
            holding = next((one for one in ranges if contains(one, wanted)), wanted)
            path = self.files.get(wanted) or self.files.get(holding)
            kernel = _cached(path, "it is not used") if path else None
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
        if found != kernel.sha256:
            raise ValueError(f"sha256 is {found}, not {kernel.sha256}")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        warn_once(f"kernel file {path}: {error}; {otherwise}")
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
    numbers = map(ctypes.c_int64, (kernel.scratch_bytes, kernel.packed_bytes, kernel.parts))
    one, shape = kernel.wanted, kernel.shape
    accumulates = int((one.smallest if isinstance(one, ProblemRange) else one).accumulates)
    sizes = (ctypes.c_int64 * len(shape))(*shape), ctypes.c_int64(len(shape))
    shim().tilewise_register(kernel.name.encode(), *addresses, *numbers, accumulates, *sizes)
    loaded[kernel.name] = kernel
    return True
