"""Kernels of a store or a service: looked up, cached on disk by hash, loaded into this process."""

import ctypes
import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewise.errors import BadInputError, MissingError, NoAnswerError, TilewiseError
from tilewise.kernels.problem import Problem, ProblemRange, parse_any
from tilewise.kernels.system.children import ONE_THREAD
from tilewise.kernels.system.files import read_regular, write_whole
from tilewise.kernels.system.toolchain import identity
from tilewise.linked.libraries import cache_folder, link
from tilewise.search.records import CacheMode, TuneRequest
from tilewise.version import VERSION

if TYPE_CHECKING:
    from tilewise.schema.results import ObjectFiles

Shim = Callable[[], ctypes.CDLL]
"""Loads a library that includes `kernels.h`, and calls the kernels that it knows."""
_WHEN = ("now", "background")

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
paths: dict[str, Path] = {}
"""Of their code, with a description next to each."""


@dataclass(frozen=True)
class Source:
    """Where kernels come from: a store's URL or a service's, by default as the environment says.

    Attributes:
        trials: schedules tried for a problem that is not stored; 0 for no search.
        threads: that kernels are tuned for.
        accuracy: of the problems, where they have the key.
        tune: `now` searches before a graph runs, `background` while it runs without kernels.
        sizes: smallest and largest size of a dynamic dim that has no bounds.

    Raises:
        BadInputError: a value makes no sense.
    """

    store: str | None = None
    server: str | None = None
    trials: int = 0
    threads: int = 1
    accuracy: str = "standard"
    tune: str = "now"
    sizes: tuple[int, int] = (1, 64)

    def __post_init__(self) -> None:
        sizes, choices = self.sizes, {"accuracy": Problem.choices["accuracy"], "tune": _WHEN}
        if not (isinstance(sizes, tuple) and len(sizes) == 2 and 0 < sizes[0] < sizes[1]):
            raise BadInputError(f"options: {sizes=} is not a pair such as (1, 64)")
        for name, least in (("trials", 0), ("threads", 1)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise BadInputError(f"options: {name}={value!r} is not a number from {least} on")
        for name, allowed in choices.items():
            if (value := getattr(self, name)) not in allowed:
                raise BadInputError(f"options: {name}={value!r} is not one of {', '.join(allowed)}")
        if self.store and self.server:
            raise BadInputError("options: give store or server, not both")

    @contextmanager
    def open(self, shim: Shim, choices: Sequence[Sequence[str]]) -> "Iterator[Kernels]":
        """Look up problems or ranges, each op's from the widest to the narrowest.

        Missing ones are searched if that is allowed. `shim` is to call the kernels.

        Raises:
            TilewiseError: the store or the service failed.
        """
        from tilewise.backends.choose import open_backend

        if not any(choices):
            yield Kernels(self, shim, None)
            return
        # A search here sets limits of threads for its children; other children keep theirs.
        before = {name: os.environ[name] for name in ONE_THREAD if name in os.environ}
        with open_backend(self.server, self.store) as backend:
            kernels = Kernels(self, shim, backend)
            try:
                kernels.look_up(choices)
            finally:
                for name in ONE_THREAD:
                    os.environ.pop(name, None)
                os.environ.update(before)
            yield kernels


class Kernels:
    """The kernels of an open store or service.

    Attributes:
        found: by problem or range: what is stored for it, a text of its schedules, their caches.
        absent: the widest problems of ops, where they are not stored.
    """

    def __init__(self, source: Source, shim: Shim, backend: Any) -> None:
        self._trials, self._shim, self._backend = source.trials, shim, backend
        self._target = target_of(source.threads)
        self.found: dict[str, tuple[str, str, Any]] = {}
        self.absent: list[str] = []

    def look_up(self, choices: Sequence[Sequence[str]]) -> None:
        """Look up problems as `Source.open` does."""
        self._fetch({problem for problems in choices for problem in problems})
        widest = dict.fromkeys(problems[0] for problems in choices if problems)
        self.absent = [one for one in widest if one not in self.found]
        if self._trials:
            request = TuneRequest(self._trials, cache="cold")
            for problem in self.absent:
                with warning(f"{problem}: not tuned"):  # such as a range that no code serves
                    self._backend.tune(problem, self._target, request, lambda _trial: None)
            self._fetch(self.absent)

    def _fetch(self, problems: Collection[str], mode: CacheMode | None = "cold") -> None:
        backend = self._backend
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
            self._fetch(problems, None)

    def load(self, problem: str) -> Kernel | None:
        """Return the kernel of a problem or a range, or that of a range that contains it, loaded.

        Return None if none is stored or it cannot run here.
        """
        if problem not in self.found:
            return None
        stored, schedules, mode = self.found[problem]
        named = hashlib.sha256(f"{stored} {schedules}".encode()).hexdigest()[:32]
        path = cache_folder() / f"kernel-{_maker()}-{named}.so"
        made = self._backend.object_files
        kernel = _cached(path) or _write(path, made(stored, self._target, mode))
        if not _is_loaded(path, kernel, self._shim):
            return None
        paths[kernel.name] = path  # of the cache, also where a package had loaded its own copy
        return kernel


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
