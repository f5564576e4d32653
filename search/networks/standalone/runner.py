"""A tuned network that needs NumPy and nothing else.

`load().run(*arrays)` computes the results; network.json says of which model, and for what processor
it is. Code, weights and this file belong together.
"""

import ctypes
import hashlib
import json
import mmap
import os
import platform
import sys
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from kernels.native.threads.pinning import pin, usable_processors

SCHEMA = "tilewise/network/1"
SPINS = 1 << 13  # looks for the next run before a helper sleeps
_SPELLED = {"sse3": "pni", "lzcnt": "abm", "bmi": "bmi1", "avx512vnni": "avx512_vnni",
            "avx512bf16": "avx512_bf16"}  # fmt: skip
"""Linux' names of extensions, where they are not LLVM's."""
_FIELDS = {"name": str, "features": list, "threads": int, "activations_bytes": int,
           "weights_bytes": int, "barrier": int, "inputs": list, "results": list,
           "sha256": dict}  # fmt: skip
_ADDRESS = ctypes.c_void_p
_BARRIER_WORDS, _PHASE = 16, 8
"""Of 8 bytes; the phase turns whenever all threads have met."""


def load(folder: str | Path = Path(__file__).parent, *, mapped: bool = False) -> "Network":
    """The network of a folder.

    Args:
        folder: where its files are; by default those beside this one.
        mapped: whether weights stay in the file, which processes then share; else they are read
            into huge pages, where the system has them. Weights that stay there are checked for
            their size alone, others for every bit.

    Raises:
        RuntimeError: the processor or the system lacks what the code needs, or a file is absent,
            damaged, or of another folder.
    """
    return Network(Path(folder), mapped=mapped)


class Network:
    """A network that can be run; it runs once at a time, whoever calls it.

    A process that is forked off has a copy of it, with threads and memory of its own.

    Args:
        folder: of its files.
        mapped: as of `load`.

    Attributes:
        about: what network.json says.
        inputs: where the arguments lie: fill them, call the network, and read `results`.
        results: where the results lie until the next run.
    """

    def __init__(self, folder: Path, *, mapped: bool = False) -> None:
        self.about = _about(folder / "network.json")
        _check_machine(folder)
        digests = self.about["sha256"]
        self._code = _library(folder / "network.so", digests["network.so"])
        name = self.about["name"]
        if not self._code[f"{name}_supported"]():
            raise RuntimeError(f"{folder}: this machine lacks {_lacking(self.about['features'])}")
        size, digest = self.about["weights_bytes"], digests["weights.bin"]
        self._weights = _weights(folder / "weights.bin", size, digest, mapped)
        self._activations = _room(self.about["activations_bytes"])
        with _read(folder / "network.json"):
            self.inputs = tuple(map(self._array, self.about["inputs"]))
            self.results = tuple(map(self._array, self.about["results"]))
        self._whole = self._code[f"{name}_run"]
        self._whole.argtypes, self._whole.restype = [_ADDRESS] * 2, None
        self._locks: dict[int, threading.Lock] = {}
        self._crew: _Crew | None = None

    def run(self, *arguments: Any) -> tuple[Any, ...]:
        """The results for arguments, in arrays of the caller's.

        Args:
            arguments: arrays in the shapes of `inputs`; bf16 as its bits in `uint16`.

        Raises:
            ValueError: they are of another number, shape or type.
        """
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
            self._compute()
            return tuple(one.copy() for one in self.results)

    def __call__(self) -> None:
        """Compute `results` of `inputs`."""
        with self._turn():
            self._compute()

    def _turn(self) -> threading.Lock:
        """The lock of this process: who held that of the process before is no thread of this."""
        return self._locks.setdefault(os.getpid(), threading.Lock())

    def _compute(self) -> None:
        if self.about["threads"] == 1:
            self._whole(self._activations.ctypes.data, self._weights.ctypes.data)
            return
        if self._crew is None or not self._crew.is_here:
            self._crew = _Crew(self._code, self.about, self._activations, self._weights)
            weakref.finalize(self, self._crew.stop)
        self._crew.run()

    def _array(self, about: dict[str, Any]) -> Any:
        dtype = np.dtype(about["dtype"])
        size = dtype.itemsize * int(np.prod(about["shape"], dtype=np.int64))
        held = self._activations[about["offset"] : about["offset"] + size]
        return held.view(dtype).reshape(about["shape"])


@contextmanager
def _read(path: Path) -> Iterator[None]:
    """What a file has is used here; errors name it."""
    try:
        yield
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise _damaged(path, f"cannot be read ({type(error).__name__}: {error})") from error


def _damaged(path: Path, what: str) -> RuntimeError:
    return RuntimeError(
        f"{path} {what}; write the folder again by `tilewise plan MODEL --module DIR`"
    )


def _about(path: Path) -> dict[str, Any]:
    """What network.json says."""
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
    """The code, which is no code of this folder's unless its digest is."""
    with _read(path):
        found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != digest:
        raise _damaged(path, "is damaged, or of another folder")
    with _read(path):
        return ctypes.CDLL(str(path.absolute()))


def _check_machine(folder: Path) -> None:
    here = sys.platform, platform.machine()
    if here != ("linux", "x86_64"):
        raise RuntimeError(f"{folder} is for linux x86_64, and this is {' '.join(here)}")


def _lacking(features: Sequence[str]) -> str:
    """The extensions that Linux does not name; all where it names them all, or none."""
    if not features:
        return "what the code needs"
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    known = {word for line in lines if line.startswith("flags") for word in line.split()}
    lacking = [one for one in features if _SPELLED.get(one, one).replace(".", "_") not in known]
    return ", ".join(lacking) if known and lacking else f"one of {', '.join(features)}"


def _weights(path: Path, size: int, digest: str, mapped: bool) -> Any:
    with _read(path):
        found = path.stat().st_size
    if found != size:
        raise _damaged(path, f"has {found} bytes, not {size}: it is damaged")
    with _read(path):
        if mapped and size:
            return np.memmap(path, np.uint8, "r")
        room = _room(size)
        with path.open("rb") as file:
            file.readinto(room.data)
    if hashlib.sha256(room.data).hexdigest() != digest:
        raise _damaged(path, "is damaged, or of another folder")
    return room


def _room(size: int) -> Any:
    """Zeroed memory, of which a process that is forked off has a copy."""
    pages = mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # of a system that is built without them
            pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, np.uint8)[:size]


class _Crew:
    """The caller and helpers, each on a processor of its own; helpers look for work, then sleep.

    It is of one process: a process that is forked off has none of its threads. An exception, as
    of Ctrl-C, may cut a run off wherever this thread is in Python, and helpers then wait for its
    part. Two words that all threads share tell whether that is so.

    Args:
        code: the library.
        about: what network.json says.
        activations, weights: a helper that lost its processor while it waited for the others may
            still look at them when the network has gone, and so they stay.
    """

    def __init__(
        self, code: ctypes.CDLL, about: dict[str, Any], activations: Any, weights: Any
    ) -> None:
        self._part, self._help, self._tell = (
            code[f"{about['name']}_{ending}"] for ending in ("part", "help", "tell")
        )
        self._part.argtypes, self._part.restype = [_ADDRESS, _ADDRESS, ctypes.c_int64], None
        self._tell.argtypes, self._tell.restype = [_ADDRESS, ctypes.c_int64], None
        self._help.argtypes = [_ADDRESS, *[ctypes.c_int64] * 2, *[_ADDRESS] * 2, ctypes.c_int64]
        self._help.restype = ctypes.c_int64
        self._kept = activations, weights
        self._memory = activations.ctypes.data, weights.ctypes.data
        end = about["barrier"] + 8 * _BARRIER_WORDS
        self._barrier = activations[about["barrier"] : end].view(np.int64)
        self._barrier[:] = 0
        self._board = _room(4096).view(np.int64)
        self._begun = 0, 0
        self._process, self._is_over = os.getpid(), False
        usable = usable_processors()
        self._home, *others = (usable[i % len(usable)] for i in range(about["threads"]))
        self._asleep = [False] * len(others)
        self._wake = [threading.Semaphore(0) for _ in others]
        for helper, processor in enumerate(others):
            threading.Thread(target=self._serve, args=(helper, processor), daemon=True).start()

    @property
    def is_here(self) -> bool:
        """Whether its threads are of this process."""
        return self._process == os.getpid()

    def run(self) -> None:
        """One run of all threads."""
        before = pin({self._home})
        try:
            self._catch_up()
            generation = int(self._board[0]) + 1
            self._begun = generation, int(self._barrier[_PHASE])
            self._tell(self._board.ctypes.data, generation)
            for helper, asleep in enumerate(self._asleep):
                if asleep:
                    self._asleep[helper] = False
                    self._wake[helper].release()
            self._part(*self._memory, 0)
        except BaseException:
            self._catch_up()
            raise
        finally:
            if before is not None:
                pin(before)

    def stop(self) -> None:
        """Let helpers end."""
        self._is_over = True
        if self.is_here:
            self._rouse()

    def _catch_up(self) -> None:
        """End a run that helpers were told of and this thread did no part of."""
        if self._begun == (self._board[0], self._barrier[_PHASE]) and self._begun[0]:
            self._rouse()
            self._part(*self._memory, 0)

    def _rouse(self) -> None:
        """Wake all helpers; one that has nothing to do sleeps again."""
        for wake in self._wake:
            wake.release()

    def _serve(self, helper: int, processor: int) -> None:
        pin({processor})
        seen = 0
        while not self._is_over:
            seen = self._help(self._board.ctypes.data, seen, SPINS, *self._memory, helper + 1)
            # Said before the last look, so that a caller sees one or the helper the other.
            self._asleep[helper] = True
            if self._board[0] == seen:
                self._wake[helper].acquire()
            else:
                self._asleep[helper] = False
