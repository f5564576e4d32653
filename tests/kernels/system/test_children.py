"""Children of this code: none of them outlives its parent."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil

from tilewise.kernels.system.children import child_command, child_environment, end_group, has_ended

PATIENCE_S = 60.0


def wait_until_gone(pid: int) -> None:
    """Wait until no process of this pid runs; one that nobody has waited for runs no more."""
    end = time.monotonic() + PATIENCE_S
    while psutil.pid_exists(pid):
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return
        except psutil.NoSuchProcess:
            return
        assert time.monotonic() < end, f"process {pid} is still there"
        time.sleep(0.02)


def write_module(folder: Path, text: str) -> dict[str, str]:
    """A module `told` that a child can run; the environment in which it finds it."""
    (folder / "told.py").write_text(text)
    environment = child_environment()
    return {**environment, "PYTHONPATH": f"{environment['PYTHONPATH']}:{folder}"}


def test_a_child_of_a_parent_that_is_gone_imports_nothing(tmp_path: Path) -> None:
    environment = write_module(tmp_path, "print('it runs')")
    command = [str(os.getpid() + 1) if c == str(os.getpid()) else c for c in child_command("told")]
    out = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (out.returncode, out.stdout) == (1, "")
    assert f"the process {os.getpid() + 1} that started this one is gone" in out.stderr


STARTS = """
import os, signal, subprocess, sys
from tilewise.kernels.system.children import child_command
child = subprocess.Popen(child_command("told"), stdout=subprocess.PIPE, start_new_session=True)
if sys.argv[1] == "later":
    child.stdout.readline()
print(child.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_child_ends_with_its_parent_at_any_moment(tmp_path: Path) -> None:
    text = "import time\nprint('here', flush=True)\ntime.sleep(600)"
    environment = write_module(tmp_path, text)
    for moment in ("at once", "later"):
        command = [sys.executable, "-c", STARTS, moment]
        out = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=False)
        wait_until_gone(int(out.stdout))


def test_a_group_is_ended_after_its_leader(tmp_path: Path) -> None:
    start = "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', 'input()'])"
    leader = subprocess.Popen(
        [sys.executable, "-c", f"{start}; print(p.pid)"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert leader.stdout is not None
    left = int(leader.stdout.readline())
    end = time.monotonic() + PATIENCE_S
    while not has_ended(leader):
        assert time.monotonic() < end
        time.sleep(0.01)
    assert psutil.Process(left).is_running()
    end_group(leader)
    assert leader.returncode == 0
    wait_until_gone(left)
