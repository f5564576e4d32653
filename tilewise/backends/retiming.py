"""Time doubtful pairs of a comparison again, on this machine."""

import time
from collections.abc import Mapping
from typing import Any

from tilewise.kernels.errors import KernelsError
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.quoting import one_line
from tilewise.schema.base import Json
from tilewise.search.errors import SearchError
from tilewise.search.final_benchmark.pairs import LOOKS, time_pair
from tilewise.search.records import TuneRequest
from tilewise.search.runner.protocol import CandidateFailureError
from tilewise.search.runner.runner import local_runner
from tilewise.search.verdicts import Verdict
from tilewise.service.host.machine import examine_here

DOUBTFUL = (Verdict.SLOWER, Verdict.UNDECIDED)
"""The verdicts to settle, in the order in which pairs are timed."""

Steps = tuple[list[Any], list[Any]]
"""Those of a pair: in BASE, and in NEW."""


def retime(rows: list[Json], steps: Mapping[int, Steps], tolerance: float, seconds: float) -> None:
    """Time undecided rows of a comparison again, in place, within about `seconds`.

    `steps` are by the index of the row. Each pair has its share of the time that is left. A row
    gets `timed_again`, or a `reason` why it stays.
    """
    end, here = time.monotonic() + seconds, examine_here()
    doubtful = [at for at, row in enumerate(rows) if row["verdict"] in DOUBTFUL]
    doubtful.sort(key=lambda at: DOUBTFUL.index(rows[at]["verdict"]))
    for done, at in enumerate(doubtful):
        row, (base, new) = rows[at], steps[at]
        is_same_toolchain = row["base"]["toolchain"] == row["new"]["toolchain"]
        share_s = max(0.0, end - time.monotonic()) / (len(doubtful) - done)
        if row["target"] not in here.targets:
            row["reason"] = f"this machine cannot time {row['target']}"
        elif base == new:
            row["reason"] = "both have the same schedule"
            if is_same_toolchain:
                row["verdict"] = str(Verdict.SAME)
                row["reason"] += " and toolchain"
        elif not share_s:
            row["reason"] = f"the {seconds:g} s are over; give more --seconds"
        else:
            _time_again(row, (base, new), tolerance, share_s, is_same_toolchain)


def _time_again(
    row: Json, steps: Steps, tolerance: float, seconds: float, is_same_toolchain: bool
) -> None:
    """Time the pair of a row, and correct its verdict.

    Both schedules are compiled by the present toolchain. Where the stored ones differ, a slowdown
    of compiled code cannot show, so only a regression of the schedule is settled.
    """
    problem, target = parse_problem(row["problem"]), row["target"]
    try:
        with local_runner(problem, target, TuneRequest(cache=row["cache"])) as runner:
            timing = time_pair(runner, *steps, tolerance, seconds)
    except (KernelsError, SearchError, CandidateFailureError) as error:
        row["reason"] = f"a schedule cannot be timed: {one_line(error)}"
        return
    found = timing.verdict(tolerance)
    row["timed_again"] = {
        "ratio": timing.ratio, "interval": list(timing.interval), "verdict": str(found),
        "processes": timing.processes, "was": row["verdict"],
    }  # fmt: skip
    if found is Verdict.UNDECIDED and timing.processes < LOOKS[-1]:
        row["reason"] = f"still undecided after {seconds:.0f} s; give more --seconds"
    elif is_same_toolchain or found is Verdict.SLOWER:
        row["verdict"], row["ratio"], row["reason"] = str(found), timing.ratio, None
    else:
        row["reason"] = f"the schedules are {found} here, but the stored toolchains differ"
