"""A runner's child whose second finalist is delayed by a share of its time.

Programs start it as `python -m benchmarks.measuring.delayed`.
"""

import os
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from tilewise.search.runner.child import interleaved
from tilewise.search.runner.child.__main__ import answering
from tilewise.search.runner.child.compiler import answer_all
from tilewise.search.runner.child.session import Session
from tilewise.search.timing.samples import Run

VARIABLE = "PLANTED_DELAY"


def delayed(run: Run, share: float) -> Run:
    """Return a run that takes longer by a share of its time."""

    def run_delayed(repeat: int) -> None:
        begin = time.perf_counter()
        run(repeat)
        end = time.perf_counter()
        until = end + share * (end - begin)
        while time.perf_counter() < until:
            pass

    return run_delayed if share else run


def planted(place: Callable[..., list[Run]], share: float) -> Callable[..., list[Run]]:
    """Return what places finalists, with the second of them delayed."""

    def placed(*given: Any) -> list[Run]:
        first, second = place(*given)
        return [first, delayed(second, share)]

    return placed


if __name__ == "__main__":
    share = float(os.environ.get(VARIABLE, "0"))
    with patch.object(interleaved, "_placed", planted(interleaved._placed, share)):
        answer_all(Session, answering)
