"""`Target`: a processor and a number of threads, as a frozen value."""

import re
from dataclasses import dataclass, field, replace
from typing import Literal

from tilewise.kernels.errors import TargetError
from tilewise.kernels.problem.dtypes import DTYPES
from tilewise.kernels.quoting import quoted

Kind = Literal["cpu", "iree"]
KIB = 1024
MOST_THREADS = 1024
# LLVM's names of processors are of these characters.
_TARGET = re.compile(
    r"(?P<kind>cpu|iree):(?P<name>[A-Za-z0-9][A-Za-z0-9._+-]{0,63})"
    r"(,threads=(?P<threads>[0-9]{1,9}))?"
)


@dataclass(frozen=True)
class Target:
    """A processor as the code generator and the analytical prior see it.

    Attributes:
        cpu: LLVM's name of the processor.
        threads: cores that one kernel uses.
        features: LLVM names of the instruction-set extensions present.
        vector_bytes: width of a vector register.
        vector_registers: architectural vector registers.
        l1_bytes, l2_bytes, l3_bytes: data cache sizes as one core sees them; 0 is absent.
        cores: processors that this process may run on.
        kind: whose code runs there: `cpu` our own, `iree` that of IREE's compiler.
        rates: measured GFLOP/s of one thread by instruction; empty where nothing was measured.
    """

    cpu: str
    threads: int = 1
    features: frozenset[str] = field(default=frozenset(), repr=False)
    vector_bytes: int = 16
    vector_registers: int = 16
    l1_bytes: int = 32 * KIB
    l2_bytes: int = 256 * KIB
    l3_bytes: int = 0
    cores: int = 1
    kind: Kind = "cpu"
    rates: tuple[tuple[str, float], ...] = field(default=(), repr=False)

    @property
    def canonical(self) -> str:
        """The contract's string, such as `cpu:znver4,threads=1`."""
        return canonical_target(self.kind, self.cpu, self.threads)

    @property
    def has_fma(self) -> bool:
        """Whether a fused multiply-add is one instruction (else it would be a library call)."""
        return bool(self.features & {"fma", "neon", "fp-armv8"})

    def lanes(self, dtype: str) -> int:
        """Accumulator lanes of one vector register for a problem's dtype."""
        return self.vector_bytes // DTYPES[dtype].accumulator_bytes

    def with_threads(self, threads: int) -> "Target":
        """The same processor using `threads` cores."""
        return replace(self, threads=threads)


def canonical_target(kind: Kind, cpu: str, threads: int) -> str:
    """The contract's string of a target."""
    return f"{kind}:{cpu},threads={threads}"


def target_kind(text: str) -> Kind:
    """Whose code a target runs: `iree` for `iree:NAME`, else `cpu`."""
    return "iree" if text.startswith("iree:") else "cpu"


def parse_target(text: str) -> tuple[str, int]:
    """Split `cpu:NAME,threads=N` (or `iree:`, or `host`) into the processor's name and the threads.

    Raises:
        TargetError: anything that is none of these forms.
    """
    if text == "host":
        return "host", 1
    found = _TARGET.fullmatch(text)
    if found is None:
        raise TargetError(
            f"target {quoted(text)} is neither 'host' nor cpu:NAME,threads=N, nor iree:NAME"
        )
    threads = int(found["threads"] or 1)
    if not 1 <= threads <= MOST_THREADS:
        raise TargetError(
            f"target {text!r}: threads={threads} is out of range; give 1 to {MOST_THREADS}"
        )
    return found["name"], threads


def check_threads(text: str, threads: int, cores: int) -> None:
    """Check that a machine of some cores can serve a target.

    Raises:
        TargetError: the target has more threads.
    """
    if threads <= cores:
        return
    has, give = ("1 processor", "1") if cores == 1 else (f"{cores} processors", f"1 to {cores}")
    raise TargetError(f"target {text!r}: this machine has {has}; give threads={give}")
