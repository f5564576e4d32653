import io
import json
import os
import pty
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from rich.console import Console

from tests.tilewise.conftest import PROBLEM, Cli
from tilewise.cli.commands.top import Snapshot, rendered, take
from tilewise.client import Client, Worker
from tilewise.kernels.system.children import child_environment


def drawn(found: Snapshot, width: int) -> str:
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=False).print(rendered(found, width))
    return out.getvalue()


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
    told = json.loads(cli("top", "--once", "--json", "--server", served_as_stored).out)
    assert [job["problem"] for job in told["ended"]] == [PROBLEM]
    assert told["running"] == told["queued"] == []


@pytest.mark.full
@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_the_terminal(found: Snapshot, width: int) -> None:
    lines = drawn(found, width).splitlines()
    assert lines[0].startswith("0 running, 0 queued, 1 workers for 3")
    assert max(map(len, lines)) <= width
    assert sum(line.lstrip().startswith("1 ") for line in lines) == 1  # the job is one line
    assert (PROBLEM in drawn(found, width)) == (width > 40)


def test_what_others_have_named_moves_no_cursor(found: Snapshot) -> None:
    (job,) = found.ended
    hostile = "\x1b[2J\x1b]0;title\x07[red]matmul\r\n\u202e"
    text = drawn(replace(found, ended=(replace(job, problem=hostile),)), 200)
    assert "\x1b" not in text and "\x07" not in text and "\r" not in text and "\u202e" not in text
    assert "[red]matmul" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "name a service"),
        (("--server", "http://127.0.0.1:9", "--interval", "0"), "--interval '0'"),
        (("--server", "http://127.0.0.1:9", "--interval", "often"), "--interval 'often'"),
        (("--server", "http://127.0.0.1:9", "--interval", "nan"), "--interval 'nan'"),
    ],
)
def test_bad_input_is_one_line(cli: Cli, arguments: tuple[str, ...], said: str) -> None:
    ran = cli("top", "--once", *arguments)
    assert ran.code == 2 and said in ran.err and ran.err.count("\n") == 1


@pytest.mark.full
def test_a_terminal_is_drawn_anew_and_left_as_it_was(served_as_stored: str) -> None:
    """It is interrupted right after it was drawn, while it waits."""
    ours, theirs = pty.openpty()
    asked = ["top", "--server", served_as_stored, "--interval", "2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "tilewise", *asked], stdin=theirs, stdout=theirs, stderr=theirs,
        start_new_session=True, env=child_environment(TERM="xterm", COLUMNS="160", LINES="40"),
    )  # fmt: skip
    os.close(theirs)
    shown, deadline = b"", time.monotonic() + 60
    while shown.count(b"0 running") < 2 and time.monotonic() < deadline:
        shown += os.read(ours, 4096)
    process.send_signal(2)
    try:
        while chunk := os.read(ours, 4096):
            shown += chunk
    except OSError:  # Linux's way to say that the other end is closed
        pass
    assert process.wait(30) == 0
    assert shown.count(b"0 running") >= 2
    assert shown.rindex(b"\x1b[?1049l") > shown.rindex(b"0 running")  # the screen is given back
    assert shown.rindex(b"\x1b[?25h") > shown.rindex(b"\x1b[?25l")  # and the cursor is seen
