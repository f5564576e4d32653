"""The progress bar: on a terminal only."""

import os
import pty
import subprocess
import sys


def run(stderr: int) -> "subprocess.Popen[str]":
    program = (
        "from tilewise.cli.progress import progress\n"
        "with progress(8) as report:\n"
        "    report(3, 123.4)\n"
        "print('result')\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=stderr, text=True
    )


def test_a_terminal_gets_a_bar_on_stderr() -> None:
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
    assert b"3/8" in shown
    assert b"best 123.4 GFLOP/s" in shown


def test_a_pipe_gets_nothing() -> None:
    process = run(subprocess.PIPE)
    assert process.communicate() == ("result\n", "")
