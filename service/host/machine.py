"""The description of this machine, examined once in a child process.

Naming the processor takes LLVM, which the service must not carry in its memory.
"""

import functools
import json
import socket
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from typing import Any

from tilewise.kernels.errors import TargetError
from tilewise.kernels.footprint import physical_memory
from tilewise.kernels.target import TargetName, detect, parse_target
from tilewise.kernels.target.features import differences
from tilewise.kernels.target.model import Kind, check_processor, check_threads
from tilewise.service.errors import ConflictError, MachineError
from tilewise.service.host.child import answer_of


@dataclass(frozen=True)
class MachineInfo:
    """The stored description of a machine.

    `cpu` and `features` are LLVM's names; `cores` are those that a job may use; `caches` are bytes
    of the data caches, as `l1`, `l2`, `l3`.
    """

    host: str
    cpu: str
    cores: int
    memory_bytes: int
    caches: dict[str, int]
    features: tuple[str, ...] = ()

    @property
    def target(self) -> str:
        """The canonical target of one thread, which `host` means."""
        return self.named.canonical

    @property
    def named(self) -> TargetName:
        """The target of one thread by its parts."""
        return TargetName(self.cpu, differences=differences(self.cpu, self.features))

    @property
    def targets(self) -> tuple[str, ...]:
        """Return every target of this machine: each number of threads, IREE's if installed."""
        kinds: tuple[Kind, ...] = ("cpu", "iree") if has_iree() else ("cpu",)
        return tuple(
            replace(self.named, kind=kind, threads=threads).canonical
            for kind in kinds
            for threads in range(1, self.cores + 1)
        )

    def canonical_target(self, text: str) -> str:
        """Return the canonical form of any target; `host` is this machine. Raises TargetError."""
        return self._meant(parse_target(text)).canonical

    def _meant(self, wanted: TargetName) -> TargetName:
        """A target; this machine for `host`."""
        if wanted.cpu != "host":
            return wanted
        return replace(self.named, kind=wanted.kind, threads=wanted.threads)

    def require_served(self, text: str) -> str:
        """Return the canonical form of a target that this machine can time.

        Raises TargetError if it is malformed, of another processor or features, has too many
        threads, or needs IREE and that is not installed.
        """
        wanted = parse_target(text)
        check_processor(text, wanted, self.named)
        check_threads(text, wanted.threads, self.cores)
        if wanted.kind == "iree" and not has_iree():
            raise TargetError(
                f"target {text!r}: IREE's compiler and runtime are not both installed here; "
                "install tilewise[kernels]"
            )
        return self._meant(wanted).canonical


@functools.cache
def has_iree() -> bool:
    """Return whether IREE's compiler and runtime are installed, without loading them."""
    try:
        return all(find_spec(name) is not None for name in ("iree.compiler", "iree.runtime"))
    except ModuleNotFoundError:
        return False


def examine_here() -> MachineInfo:
    """Examine the machine in this process, which loads LLVM."""
    target = detect()
    return MachineInfo(
        host=socket.gethostname(),
        cpu=target.cpu,
        cores=target.cores,
        memory_bytes=physical_memory(),
        caches={"l1": target.l1_bytes, "l2": target.l2_bytes, "l3": target.l3_bytes},
        features=tuple(sorted(target.features)),
    )


def examine() -> MachineInfo:
    """Examine the machine in a child process; raise MachineError with its last line if it fails."""
    try:
        found = json.loads(answer_of(f"{__name__}:described", "what this machine is"))
    except ConflictError as error:
        raise MachineError(str(error)) from error
    return MachineInfo(**{**found, "features": tuple(found["features"])})


def described() -> dict[str, Any]:
    """Return what the child prints."""
    return asdict(examine_here())
