"""What the commands `tune` and `top` draw in a terminal."""

import io
import os
import pty
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from rich.console import Console

from tests.tilewise.conftest import PROBLEM, Cli
from tilewise.backends.base import TrialSeen
from tilewise.cli.commands.top import Snapshot, _snapshots, rendered, take
from tilewise.cli.progress import ProgressLines, Watched, drawn
from tilewise.client import Client, Worker
from tilewise.errors import NoAnswerError, TilewiseError
from tilewise.search.progress import SearchPhase
from tilewise.search.records import TuneRequest

HIDDEN, SHOWN = b"\x1b[?25l", b"\x1b[?25h"
PROGRAM = """
from tilewise.search.progress import SearchPhase
from tilewise.backends.base import TrialSeen
from tilewise.search.records import TuneRequest
from tilewise.cli.progress import progress
with progress(TuneRequest(8), lambda: 200.0) as watcher:
    watcher.trial(TrialSeen(0, "timed", None, 123.4, (120.0, 125.0)))
    watcher.trial(TrialSeen(1, "failed", "crash"))
    watcher.phase(SearchPhase("proof", 1, 3))
print("result")
"""


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def watched(clock: Clock, **request: Any) -> Watched:
    return Watched(TuneRequest(**{"trials": 8, **request}), 200.0, clock)


def timed(number: int, gflops: float) -> TrialSeen:
    return TrialSeen(number, "timed", None, gflops, (gflops - 1, gflops + 1))


def test_the_best_is_shown_by_the_speed_that_is_known_now() -> None:
    stream = io.StringIO()
    shown = ProgressLines(TuneRequest(trials=3), stream=stream)
    wrong, right = timed(0, 60.0), timed(0, 150.0)
    shown.trial(replace(wrong, best=wrong))
    shown.trial(replace(timed(1, 140.0), best=right))
    shown.trial(replace(timed(2, 130.0), best=right))
    lines = stream.getvalue().splitlines()
    assert [line.partition("best ")[2].split()[0] for line in lines] == ["60.0", "150.0"]


def printed(drawing: Any, width: int) -> str:
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=False).print(drawing)
    return out.getvalue()


def text(of: Watched, width: int) -> list[str]:
    return printed(drawn(of, width), width).splitlines()


def in_terminal(
    arguments: list[str], until: bytes = b"", times: int = 1, *, out: bool = False, **variables: str
) -> tuple[bytes, str, int]:
    """Run a program whose stderr is a terminal, and stdout where `out` says so; interrupt it.

    Return what it wrote to the terminal, its other stdout, and its exit status.
    """
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, *arguments], stdout=theirs if out else subprocess.PIPE, stderr=theirs,
        text=True, env={**os.environ, "TERM": "xterm", **variables},
    )  # fmt: skip
    os.close(theirs)
    written = b""
    try:
        while chunk := os.read(ours, 4096):
            written += chunk
            if until and written.count(until) >= times:
                process.send_signal(signal.SIGINT)
                until = b""
    except OSError:  # Linux's way to say that the other end is closed
        pass
    finally:
        os.close(ours)
    piped = process.communicate(timeout=60)[0]
    return written, piped, process.returncode


def test_a_terminal_gets_the_table_on_stderr() -> None:
    written, out, _ = in_terminal(["-c", PROGRAM])
    assert out == "result\n"
    for part in (b"search", b"2/8", b"123.4 GFLOP/s [120.0, 125.0]", b"62% of the peak",
                 b"1 failed (1 crash)", b"proof", b"1/3"):  # fmt: skip
        assert part in written
    assert written.rindex(SHOWN) > written.rindex(HIDDEN), "the cursor is shown again"


def test_a_pipe_or_a_terminal_that_can_do_nothing_gets_lines() -> None:
    piped = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert piped.stdout == "result\n"
    written = [in_terminal(["-c", PROGRAM], TERM=name)[0].decode() for name in ("dumb", "unknown")]
    for found in (piped.stderr, *written):
        assert found.splitlines() == [
            "tilewise: search 1/8: best 123.4 GFLOP/s [120.0, 125.0]",
            "tilewise: proof, after 1 timed, 0 pruned, 1 failed (1 crash)",
        ]


INTERRUPTED = f"""
import sys, time
from tilewise.backends.base import TrialSeen
from tilewise.backends.local import LocalBackend
from tilewise.cli import main

def tune(_backend, _problem, _target, _request, on_trial, *_more, **_options):
    on_trial(TrialSeen(0, "timed", None, 123.4, (120.0, 125.0)))
    time.sleep(600)

LocalBackend.tune = tune
sys.exit(main(["tune", "{PROBLEM}", "--db", sys.argv[1]]))
"""


def test_top_outlasts_a_restart_and_ends_with_other_errors() -> None:
    look = Mock(side_effect=[away := NoAnswerError("away"), "snapshot", TilewiseError("401")])
    found = _snapshots(look, 0.0)
    assert [next(found), next(found)] == [away, "snapshot"]
    with pytest.raises(TilewiseError, match="401"):
        next(found)


@pytest.mark.full
def test_an_interrupt_leaves_the_terminal_as_it_was(tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path / 'results.db'}"
    written, out, code = in_terminal(["-c", INTERRUPTED, database], until=b"GFLOP/s")
    assert (out, code) == ("", 130)
    assert written.rindex(SHOWN) > written.rindex(HIDDEN)
    assert written.rstrip().endswith(SHOWN) or b"Traceback" not in written


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_each_row_is_one_line_of_any_terminal(clock: Clock, width: int) -> None:
    shown = watched(clock)
    for number in range(6):
        clock.now += 1.0
        shown.trial(timed(number, 100.0 + number))
    shown.trial(TrialSeen(6, "failed", "a class of a newer service " * 9))
    found = text(shown, width)
    assert [line.split()[0] for line in found] == ["search", "best", "trials", "improved"]
    assert all(len(line) <= width for line in found)
    assert ("█" in found[0]) is (width >= 60)


def test_what_another_process_says_is_no_order_to_the_terminal(clock: Clock) -> None:
    shown, stream = watched(clock), io.StringIO()
    shown.trial(TrialSeen(0, "failed", "\x1b[2J\x07evil"))
    assert all(line.isprintable() for line in text(shown, 80))
    told = ProgressLines(TuneRequest(trials=8), 200.0, clock, stream=stream)
    told.trial(TrialSeen(0, "failed", "\x1b[2J"))
    told.phase(SearchPhase("proof", 0, 3))
    assert "\x1b" not in stream.getvalue()


def test_counts_failures_and_improvements_are_shown(clock: Clock) -> None:
    shown = watched(clock)
    for seen in (timed(0, 100.0), TrialSeen(1, "failed", "timeout"), timed(2, 90.0),
                 TrialSeen(3, "pruned", None, 150.0), timed(4, 120.0),
                 timed(5, 130.0)):  # fmt: skip
        shown.trial(seen)
    _, best, trials, improved = text(shown, 100)
    assert "130.0 GFLOP/s [129.0, 131.0], 65% of the peak" in best, "a pruned trial is not it"
    assert "4 timed, 1 pruned, 1 failed (1 timeout)" in trials
    assert "trial 5 130.0, trial 4 120.0, trial 0 100.0" in improved


def test_the_time_that_is_left_is_told_by_the_rate(clock: Clock) -> None:
    shown = watched(clock)
    assert shown.left_s() is None
    for number in range(2):
        clock.now += 3.0
        shown.trial(timed(number, 1.0))
    assert shown.left_s() == 18.0
    clock.now += 2.0
    assert shown.left_s() == 16.0
    shown.phase(SearchPhase("proof", 0, 3))
    assert shown.left_s() is None
    clock.now += 1.0
    shown.phase(SearchPhase("proof", 1, 3))
    assert shown.left_s() == 2.0
    shown.phase(SearchPhase("finals", 0, 0))
    assert shown.left_s() is None and "left" not in "".join(text(shown, 80))

    shown = watched(clock)
    clock.now += 2.0
    shown.trial(timed(4, 1.0))
    assert shown.earlier == 4 and shown.left_s() == 6.0, "they took no time of this search"
    assert "4 of an earlier search" in text(shown, 80)[2]


def test_a_budget_in_seconds_bounds_what_is_left(clock: Clock) -> None:
    shown, clock.now = watched(clock, seconds=10.0), 4.0
    assert shown.left_s() == 6.0
    shown.trial(timed(0, 1.0))
    assert shown.left_s() == 6.0, "28 by the rate"
    clock.now = 12.0
    assert shown.left_s() == 0.0


def drawn_top(found: Snapshot, width: int) -> str:
    return printed(rendered(found, width), width)


@pytest.fixture
def found(served_as_stored: str) -> Snapshot:
    """A job that has ended, and a machine."""
    machine = Worker(
        host="rack7", cpu="znver5", cores=16, targets=("cpu:znver5",), toolchain="t", capacity=3
    )
    with Client(served_as_stored) as client:
        return replace(take(client), workers=(machine,))


def test_one_look_names_jobs(cli: Cli, served_as_stored: str) -> None:
    ran = cli("top", "--once", "--server", served_as_stored)
    assert (ran.code, ran.err) == (0, "")
    assert "0 running, 0 queued, 0 workers" in ran.out and "done" in ran.out
    told = cli("top", "--once", "--json", "--server", served_as_stored).json
    assert [job["problem"] for job in told["ended"]] == [PROBLEM]
    assert told["running"] == told["queued"] == []


@pytest.mark.full
@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_the_terminal(found: Snapshot, width: int) -> None:
    lines = drawn_top(found, width).splitlines()
    assert lines[0].startswith("0 running, 0 queued, 1 workers for 3")
    assert max(map(len, lines)) <= width
    assert sum(line.lstrip().startswith("1 ") for line in lines) == 1  # the job is one line
    assert (PROBLEM in drawn_top(found, width)) == (width > 40)


def test_what_others_have_named_moves_no_cursor(found: Snapshot) -> None:
    (job,) = found.ended
    hostile = "\x1b[2J\x1b]0;title\x07[red]matmul\r\n\u202e"
    text = drawn_top(replace(found, ended=(replace(job, problem=hostile),)), 200)
    assert "\x1b" not in text and "\x07" not in text and "\r" not in text and "\u202e" not in text
    assert "[red]matmul" in text


@pytest.mark.full
def test_a_terminal_is_drawn_anew_and_left_as_it_was(served_as_stored: str) -> None:
    """It is interrupted right after it was drawn, while it waits."""
    command = ["-m", "tilewise", "top", "--server", served_as_stored, "--interval", "2"]
    size = {"COLUMNS": "160", "LINES": "40"}
    shown, _, code = in_terminal(command, b"0 running", 2, out=True, **size)
    assert code == 0
    assert shown.count(b"0 running") >= 2
    assert shown.rindex(b"\x1b[?1049l") > shown.rindex(b"0 running")  # the screen is given back
    assert shown.rindex(b"\x1b[?25h") > shown.rindex(b"\x1b[?25l")  # and the cursor is seen
