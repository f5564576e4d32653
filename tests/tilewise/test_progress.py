"""What a terminal sees while a search runs, and what a pipe does not."""

import io
import os
import pty
import subprocess
import sys

from rich.console import Console
from rich.progress import Progress

from search.progress import Phase
from tilewise.cli.progress import Bars


def run(stderr: int) -> "subprocess.Popen[str]":
    program = (
        "from search.progress import Phase\n"
        "from tilewise.cli.progress import progress\n"
        "with progress(8) as watcher:\n"
        "    watcher(3, 123.4)\n"
        "    watcher.phase(Phase('proof', 1, 3))\n"
        "print('result')\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=stderr, text=True
    )


def test_a_terminal_gets_a_line_for_each_phase_on_stderr() -> None:
    ours, theirs = pty.openpty()
    process = run(theirs)
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 4096):
            shown += chunk
    except OSError:  # Linux's way to say that the other end is closed
        pass
    assert process.communicate()[0] == "result\n"
    for part in (b"search", b"3/8", b"best 123.4 GFLOP/s", b"proof", b"1/3"):
        assert part in shown


def test_a_pipe_gets_nothing() -> None:
    process = run(subprocess.PIPE)
    assert process.communicate() == ("result\n", "")


def bars(trials: int) -> tuple[Progress, Bars]:
    console = Console(file=io.StringIO(), force_terminal=True)
    shown = Progress(console=console, auto_refresh=False)
    return shown, Bars(shown, trials)


def lines(shown: Progress) -> list[tuple[str, float, float | None, bool]]:
    """Of each line its name, what is done, of how much, and whether its clock still runs."""
    return [(t.fields["name"], t.completed, t.total, t.stop_time is None) for t in shown.tasks]


def test_only_the_line_of_the_present_phase_moves() -> None:
    shown, told = bars(4)
    told(4, 10.0)
    assert lines(shown) == [("search", 4, 4, True)]
    told.phase(Phase("proof", 0, 3))
    told.phase(Phase("proof", 1, 3))
    told.phase(Phase("finals", 0, 0))
    assert lines(shown) == [
        ("search", 4, 4, False),
        ("proof", 1, 3, False),
        ("finals", 0, None, True),
    ]


def test_trials_that_are_told_again_do_not_begin_the_search_anew() -> None:
    shown, told = bars(4)
    told(4, 10.0)
    told.phase(Phase("proof and finals", 0, 0))
    told(4, 10.0)
    assert [name for name, *_ in lines(shown)] == ["search", "proof and finals"]
    told(2, 10.0)  # a joined job has ended, and what it left out is searched for
    assert [name for name, *_ in lines(shown)] == ["search", "proof and finals", "search"]
