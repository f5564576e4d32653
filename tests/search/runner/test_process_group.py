"""What a candidate's process has started ends with it, however it ends."""

from pathlib import Path

import psutil
import pytest

from tests.search.runner.leaving_child import CODE
from tests.service.processes import wait_until
from tilewise.search.runner.child_process import ChildProcess
from tilewise.search.runner.protocol import CandidateFailureError, Ready


def test_what_a_child_has_started_ends_with_it_and_its_code_is_told(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    child = ChildProcess(
        "tests.search.runner.leaving_child", {"do": "setup", "note": str(note)}, 60.0, 1 << 30, {}
    )
    with pytest.raises(CandidateFailureError, match=f"ended with exit code {CODE}$") as caught:
        child.ask({"do": "work"}, 60.0, Ready)
    assert caught.value.kind == "crash"
    wait_until(lambda: is_gone(int(note.read_text())))


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
