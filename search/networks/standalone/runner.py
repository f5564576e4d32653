"""A tuned network that needs NumPy and nothing else.

`load().run(*arrays)` computes the results; network.json says of which model, and for what processor
it is. Code, weights and this file belong together.
"""

import ctypes
import json
import mmap
import platform
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from kernels.native.threads.pinning import pin, usable_processors

SCHEMA = "tilewise/network/1"
SPINS = 1 << 13  # looks for the next run before a helper sleeps
_SPELLED = {"sse3": "pni", "lzcnt": "abm", "bmi": "bmi1", "avx512vnni": "avx512_vnni",
            "avx512bf16": "avx512_bf16"}  # fmt: skip
"""Linux' names of extensions, where they are not LLVM's."""
_ADDRESS = ctypes.c_void_p


def load(folder: str | Path = Path(__file__).parent, *, mapped: bool = False) -> "Network":
    """The network of a folder.

    Args:
        folder: where its files are; by default those beside this one.
        mapped: whether weights stay in the file, which processes then share; else they are read
            into huge pages, where the system has them.

    Raises:
        RuntimeError: the processor or the system lacks what the code needs, or a file is damaged.
        OSError: a file is absent.
    """
    return Network(Path(folder), mapped=mapped)


class Network:
    """A network that can be run; it runs once at a time, whoever calls it.

    Args:
        folder: of its files.
        mapped: as of `load`.

    Attributes:
        about: what network.json says.
        inputs: where the arguments lie: fill them, call the network, and read `results`.
        results: where the results lie until the next run.
    """

    def __init__(self, folder: Path, *, mapped: bool = False) -> None:
        self.about: dict[str, Any] = json.loads((folder / "network.json").read_text("utf-8"))
        if self.about.get("schema") != SCHEMA:
            raise RuntimeError(f"{folder}: schema {self.about.get('schema')!r} is not {SCHEMA}")
        _check_machine(folder)
        self._code = code = ctypes.CDLL(str((folder / "network.so").absolute()))
        name = self.about["name"]
        if not code[f"{name}_supported"]():
            raise RuntimeError(f"{folder}: this machine lacks {_lacking(self.about['features'])}")
        self._weights = _weights(folder / "weights.bin", self.about["weights_bytes"], mapped)
        self._activations = _room(self.about["activations_bytes"])
        self.inputs = tuple(map(self._array, self.about["inputs"]))
        self.results = tuple(map(self._array, self.about["results"]))
        self._lock = threading.Lock()
        memory = self._activations, self._weights
        self._run: Callable[[], None]
        if self.about["threads"] == 1:
            run = code[f"{name}_run"]
            run.argtypes, run.restype = [_ADDRESS] * 2, None
            self._run = partial(run, *(one.ctypes.data for one in memory))
        else:
            crew = _Crew(code, name, self.about["threads"], memory)
            weakref.finalize(self, crew.stop)
            self._run = crew.run

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
        with self._lock:
            for given, held in zip(arguments, self.inputs, strict=True):
                held[...] = given
            self._run()
            return tuple(one.copy() for one in self.results)

    def __call__(self) -> None:
        """Compute `results` of `inputs`."""
        with self._lock:
            self._run()

    def _array(self, about: dict[str, Any]) -> Any:
        dtype = np.dtype(about["dtype"])
        size = dtype.itemsize * int(np.prod(about["shape"], dtype=np.int64))
        held = self._activations[about["offset"] : about["offset"] + size]
        return held.view(dtype).reshape(about["shape"])


def _check_machine(folder: Path) -> None:
    here = sys.platform, platform.machine()
    if here != ("linux", "x86_64"):
        raise RuntimeError(f"{folder} is for linux x86_64, and this is {' '.join(here)}")


def _lacking(features: Sequence[str]) -> str:
    """The extensions that Linux does not name; all where it names them all, or none."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    known = {word for line in lines if line.startswith("flags") for word in line.split()}
    lacking = [one for one in features if _SPELLED.get(one, one).replace(".", "_") not in known]
    return ", ".join(lacking) if known and lacking else f"one of {', '.join(features)}"


def _weights(path: Path, size: int, mapped: bool) -> Any:
    if path.stat().st_size != size:
        raise RuntimeError(f"{path} has {path.stat().st_size} bytes, not {size}: it is damaged")
    if mapped and size:
        return np.memmap(path, np.uint8, "r")
    room = _room(size)
    with path.open("rb") as file:
        if file.readinto(room.data) != size:
            raise RuntimeError(f"{path} ended before {size} bytes")
    return room


def _room(size: int) -> Any:
    """Zeroed memory."""
    pages = mmap.mmap(-1, max(size, 1))
    if hasattr(mmap, "MADV_HUGEPAGE"):
        pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, np.uint8)[:size]


class _Crew:
    """The caller and helpers, each on a processor of its own; helpers look for work, then sleep.

    Args:
        code: the library.
        name: what its functions begin with.
        threads: how many there are with the caller.
        memory: activations and weights. A helper that lost its processor while it waited for the
            others may still look at them when the network has gone, and so they stay.
    """

    def __init__(self, code: ctypes.CDLL, name: str, threads: int, memory: Sequence[Any]) -> None:
        self._part, self._help, self._tell = (
            code[f"{name}_{ending}"] for ending in ("part", "help", "tell")
        )
        self._part.argtypes, self._part.restype = [_ADDRESS, _ADDRESS, ctypes.c_int64], None
        self._tell.argtypes, self._tell.restype = [_ADDRESS, ctypes.c_int64], None
        self._help.argtypes = [_ADDRESS, *[ctypes.c_int64] * 2, *[_ADDRESS] * 2, ctypes.c_int64]
        self._help.restype = ctypes.c_int64
        self._kept = memory
        self._memory = tuple(one.ctypes.data for one in memory)
        self._board = _room(4096)
        self._generation, self._is_over = 0, False
        usable = usable_processors()
        self._home, *others = (usable[i % len(usable)] for i in range(threads))
        self._asleep = [False] * len(others)
        self._wake = [threading.Semaphore(0) for _ in others]
        for helper, processor in enumerate(others):
            threading.Thread(target=self._serve, args=(helper, processor), daemon=True).start()

    def run(self) -> None:
        """One run of all threads."""
        before = pin({self._home})
        try:
            self._generation += 1
            self._tell(self._board.ctypes.data, self._generation)
            for helper, asleep in enumerate(self._asleep):
                if asleep:
                    self._asleep[helper] = False
                    self._wake[helper].release()
            self._part(*self._memory, 0)
        finally:
            if before is not None:
                pin(before)

    def stop(self) -> None:
        """Let helpers end."""
        self._is_over = True
        for wake in self._wake:
            wake.release()

    def _serve(self, helper: int, processor: int) -> None:
        pin({processor})
        seen = 0
        while not self._is_over:
            seen = self._help(self._board.ctypes.data, seen, SPINS, *self._memory, helper + 1)
            # Said before the last look, so that a caller sees one or the helper the other.
            self._asleep[helper] = True
            if self._generation == seen:
                self._wake[helper].acquire()
            else:
                self._asleep[helper] = False
