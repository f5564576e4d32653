"""Stored verdicts: each kernel is timed once against a framework's own op, with cold weights.

Searches time kernels on operands in caches. In a model, the weights of other layers displace them,
and some kernels lose to the framework's there. Losers are left to the framework.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

from tilewise.kernels.problem import Problem
from tilewise.kernels.system.files import read_regular, write_whole
from tilewise.linked.kernels import Kernel, warn_once
from tilewise.linked.libraries import cache_folder
from tilewise.search.ranges.samples import sample_sizes
from tilewise.search.timing.measure import interleave

TOLERANCES = {"f64": 1e-11, "f32": 1e-4, "bf16": 2e-2, "f16": 5e-3}
"""Of the norm of the difference: far above rounding, far below a wrong kernel."""
_COLD_BYTES, _MOST_COPIES = 48 << 20, 24
"""Of all weights between two uses of the same; above the L2 cache of any core."""
_ROUNDS, _SIZES = 25, 3
"""Of a measurement, and of a range."""

Call = Callable[[], Any]


@dataclass(frozen=True)
class Verdict:
    """How a kernel compares with a framework's own op on this machine.

    Attributes:
        kernel_us, own_us: times of a call of the kernel, and of the framework's op.
        is_right: whether both have the same result within rounding.
    """

    kernel_us: float
    own_us: float
    is_right: bool

    @property
    def wins(self) -> bool:
        """Return whether the kernel is to be used."""
        return self.is_right and self.kernel_us <= self.own_us


def stored_verdict(
    kernel: Kernel, framework: str, measure: Callable[[Kernel, Problem], Verdict]
) -> Verdict:
    """Return the stored verdict of a kernel against a framework, or measure and store it.

    The verdict of a range is the worst of those at both ends and between them.
    """
    path = cache_folder() / "verdicts.json"
    key = f"{kernel.problem} {kernel.target} {kernel.sha256} {framework}"
    if key not in (known := _stored(path)):
        of = kernel.wanted
        every = [of] if isinstance(of, Problem) else map(of.at, sample_sizes(of, _SIZES))
        found = [measure(kernel, problem) for problem in every]
        worst = max(found, key=lambda one: (not one.is_right, one.kernel_us / one.own_us))
        known = {**_stored(path), key: worst}  # others may have been stored meanwhile
        write_whole(path, json.dumps(known, default=asdict, indent=1).encode())
    return known[key]


def _stored(path: Path) -> dict[str, Verdict]:
    try:
        return {key: Verdict(**one) for key, one in json.loads(read_regular(path)).items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        warn_once(f"verdicts {path}: {error}; kernels are timed again")
        return {}


def cold_copies(problem: Problem) -> int:
    """Return the number of copies of the weights that displace each other from the caches."""
    size = prod(problem.operand_shapes["B"]) * problem.element.bytes
    return max(2, min(_MOST_COPIES, _COLD_BYTES // size))


def compare(
    problem: Problem, error: float, ours: Sequence[Call], theirs: Sequence[Call], threads: int
) -> Verdict:
    """Time calls of a kernel and of a framework's op, one for each copy of the weights.

    `error` is that of the kernel's result, relative to the norm.
    """
    kernel_s, own_s = in_turns(ours, theirs, threads=threads)
    return Verdict(1e6 * kernel_s, 1e6 * own_s, error <= TOLERANCES[problem.dtype])


def in_turns(*sides: Sequence[Call], threads: int) -> Iterator[float]:
    """Yield seconds of a call of each side, of its fastest round: disturbances only add.

    A round calls all calls of a side one after the other, so that each finds its weights out of
    the caches.
    """

    def run(calls: Sequence[Call], repeat: int) -> None:
        for _ in range(repeat):
            for call in calls:
                call()

    found = interleave([partial(run, calls) for calls in sides], _ROUNDS, threads)
    for calls, samples in zip(sides, found, strict=True):
        yield min(samples.times) / len(calls)
