"""`Target`: a processor and a number of threads, as a frozen value."""

import re
from dataclasses import dataclass, field, replace
from typing import Literal

from tilewise.kernels.errors import TargetError
from tilewise.kernels.problem.keys import STORED
from tilewise.kernels.quoting import quoted
from tilewise.kernels.target.cores import Core, core_of
from tilewise.kernels.target.features import (
    UNKNOWN,
    differences,
    read_differences,
    with_differences,
)

Kind = Literal["cpu", "iree"]
KIB = 1024
MOST_THREADS = 1024
# LLVM's names of processors are of these characters.
_TARGET = re.compile(
    r"(?P<kind>cpu|iree):(?P<name>[A-Za-z0-9][A-Za-z0-9._+-]{0,63})"
    r"(,threads=(?P<threads>[0-9]{1,9}))?(,features=(?P<features>[a-z0-9.+: -]{1,600}))?"
)
LONGEST_TARGET = 500
"""Characters of a canonical target: fewer than that, even if every extension differs."""


@dataclass(frozen=True)
class TargetName:
    """A target as its text names it, on whatever machine.

    Attributes:
        cpu: LLVM's name of the processor, or `host`.
        threads: cores that one kernel uses.
        kind: whose code runs there.
        differences: how the processor differs from what its name implies, as
            `tilewise.kernels.target.features` has it; `unknown` alone where nothing was recorded.
    """

    cpu: str
    threads: int = 1
    kind: Kind = "cpu"
    differences: tuple[str, ...] = ()

    @property
    def canonical(self) -> str:
        """Return the contract's string: `cpu:emeraldrapids,threads=1,features=-amx-tile`."""
        differing = f",features={':'.join(self.differences)}" if self.differences else ""
        return f"{self.kind}:{self.cpu},threads={self.threads}{differing}"

    @property
    def is_known(self) -> bool:
        """Return whether the features of the machine are known."""
        return UNKNOWN not in self.differences

    @property
    def features(self) -> frozenset[str]:
        """Return which of `EXTENSIONS` the processor has; empty if not known."""
        return with_differences(self.cpu, self.differences) if self.is_known else frozenset()

    def why_not(self, wanted: "TargetName") -> str | None:
        """Return how the features of a result of this target differ from those wanted, if so."""
        if not self.is_known:
            return "the features of the machine that timed it were not recorded"
        lacks, has = wanted.features - self.features, self.features - wanted.features
        differing = [f"{'+' if name in has else '-'}{name}" for name in sorted(lacks | has)]
        return f"features differ: {' '.join(differing)}" if differing and wanted.is_known else None

    def is_of(self, other: "TargetName") -> bool:
        """Return whether both have one processor's name and the same, known, features."""
        same = (self.cpu, self.differences) == (other.cpu, other.differences)
        return same and self.is_known


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
    def named(self) -> TargetName:
        """Return this target's name, threads, and differences from what the name implies."""
        return TargetName(self.cpu, self.threads, self.kind, differences(self.cpu, self.features))

    @property
    def canonical(self) -> str:
        """Return the contract's string, such as `cpu:znver4,threads=1`."""
        return self.named.canonical

    @property
    def core(self) -> Core:
        """Return its core in the table; the default for one that is not in it."""
        return core_of(self.cpu, self.features)[0]

    @property
    def has_fma(self) -> bool:
        """Return whether a fused multiply-add is one instruction, not a library call."""
        return bool(self.features & {"fma", "neon", "fp-armv8"})

    def lanes(self, dtype: str) -> int:
        """Return the accumulator lanes of one vector register for a problem's dtype."""
        return self.vector_bytes // STORED[dtype.partition("*")[0]].accumulator_bytes

    def with_threads(self, threads: int) -> "Target":
        """Return the same processor using `threads` cores."""
        return replace(self, threads=threads)


def target_kind(text: str) -> Kind:
    """Return whose code a target runs: `iree` for `iree:NAME`, else `cpu`."""
    return "iree" if text.startswith("iree:") else "cpu"


def parse_target(text: str) -> TargetName:
    """Read `cpu:NAME,threads=N,features=LIST` (or `iree:`, or `host`).

    Raises:
        TargetError: anything that is none of these forms.
    """
    if text == "host":
        return TargetName("host")
    found = _TARGET.fullmatch(text)
    if found is None:
        raise TargetError(
            f"target {quoted(text)} is neither 'host' nor cpu:NAME,threads=N[,features=LIST], "
            "nor iree:NAME"
        )
    cpu, threads = found["name"], int(found["threads"] or 1)
    if not 1 <= threads <= MOST_THREADS:
        raise TargetError(
            f"target {quoted(text)}: threads={threads} is out of range; give 1 to {MOST_THREADS}"
        )
    if found["features"] is None:
        return TargetName(cpu, threads, target_kind(text))
    if cpu == "host":
        raise TargetError(f"target {quoted(text)}: host has its own features; leave them out")
    differing = read_differences(text, cpu, found["features"])
    return TargetName(cpu, threads, target_kind(text), differing)


def check_known(text: str) -> None:
    """Check that a target names what can be requested.

    Raises:
        TargetError: malformed, or of features that nobody recorded.
    """
    if not parse_target(text).is_known:
        raise TargetError(
            f"target {quoted(text)}: features=unknown only names results that are stored; "
            "use host, or a target of GET /v1/targets"
        )


def check_processor(text: str, wanted: TargetName, here: TargetName) -> None:
    """Check that a machine is the processor that a target names, with the same features.

    Raises:
        TargetError: it is another, or lacks some features, or has more.
    """
    if wanted.cpu == "host" or wanted.is_of(here):
        return
    check_known(text)
    why = ""
    if wanted.cpu == here.cpu:
        lacks, has = (sorted(a.features - b.features) for a, b in ((wanted, here), (here, wanted)))
        parts = [f"{verb} {', '.join(n)}" for verb, n in (("lacks", lacks), ("has", has)) if n]
        why = f", which {' and '.join(parts)}"
    raise TargetError(f"target {quoted(text)}: this machine is {here.canonical}{why}; use host")


def check_threads(text: str, threads: int, cores: int) -> None:
    """Check that a machine of some cores can serve a target.

    Raises:
        TargetError: the target has more threads.
    """
    if threads <= cores:
        return
    has, give = ("1 processor", "1") if cores == 1 else (f"{cores} processors", f"1 to {cores}")
    raise TargetError(f"target {quoted(text)}: this machine has {has}; give threads={give}")
