"""Run compiled forms of a model in a child process: same inputs, compared, timed in turn."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tilewise.errors import TilewiseError
from tilewise.kernels.system.limited_child import run_limited
from tilewise.kernels.system.typed_json import from_json

CHILD = "tilewise.model.child"


@dataclass(frozen=True)
class FormRuns:
    """One compiled form's runs.

    Attributes:
        times: seconds of each run, in rounds with the other forms.
        deviation: relative rms error against the reference, the largest of all results; infinite
            where finiteness or an integer differs, one of 8 bits by more than 1.
        overwrites: positions of the arguments that it overwrites.
    """

    times: tuple[float, ...]
    deviation: float
    overwrites: tuple[int, ...] = ()

    @property
    def time_ms(self) -> float:
        """Median time."""
        return 1e3 * median(self.times)


@dataclass(frozen=True)
class ModelTimes:
    """The measurements of all forms."""

    entry: str
    arguments: tuple[str, ...]
    results: tuple[str, ...]
    forms: dict[str, FormRuns]


ROUNDS = 25
LIMITS = {"budget_s": 30.0, "seconds": 600.0, "memory_bytes": 32 << 30}
"""Of the child process, and of what it measures."""


def measure(
    codes: Mapping[str, Path],
    entry: str | None,
    threads: int,
    *,
    declarations: Mapping[str, str] | None = None,
    reference: Path | None = None,
    rounds: int = ROUNDS,
) -> ModelTimes:
    """Run and time each compiled form; compare it with the reference, by default the first form.

    Raises TilewiseError if a form does not load or run, or the function does not exist.
    """
    request = {
        "codes": {name: str(path) for name, path in codes.items()},
        "reference": str(reference or next(iter(codes.values()))),
        "entry": entry,
        "threads": threads,
        "declarations": dict(declarations or {}),
        "rounds": rounds,
        **LIMITS,
        "seconds": LIMITS["seconds"] * threads,  # of the processors' time, too
    }
    return from_json(ModelTimes, reply_of(request, "the compiled model does not run"))


class RefusedRunError(TilewiseError):
    """The child refused what it was given; the message says why."""


def reply_of(request: dict[str, Any], fault: str) -> dict[str, Any]:
    """Return what the child measured.

    Raises RefusedRunError with its reason, or TilewiseError with `fault` if it ended.
    """
    ended = run_limited(request, CHILD)
    if ended.reply is None:
        raise TilewiseError(f"{fault}: {ended.message}")
    if "refused" in ended.reply:
        raise RefusedRunError(str(ended.reply["refused"]))
    return ended.reply
