"""A child is held to its limits by its parent, and by itself where the parent is gone."""

import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.kernels.mlir.build import IN_PLACE, schedule
from tests.kernels.mlir.proof.test_failures import SQUARE
from tests.kernels.system.test_system import wait_until_gone
from tilewise.kernels.errors import LimitError
from tilewise.kernels.mlir.proof.proof import ProofReply, run_child
from tilewise.kernels.mlir.proof.prove import prove, prove_script, transform, verify
from tilewise.kernels.system.children import child_environment
from tilewise.kernels.system.limited_child import LIBRARIES, MOST_PRINTED

CHILDREN = "tests.kernels.mlir.children"
LONG = 600.0


def asked(do: str, seconds: float = LONG, **more: Any) -> ProofReply:
    """What becomes of a child that does this."""
    limits = {"seconds": seconds, "memory_bytes": 4 << 30}
    return run_child({"do": do, **limits, **more}, CHILDREN)


def test_a_child_that_waits_is_stopped_by_its_parent() -> None:
    """It uses no processor time, so no limit of its own ends it."""
    assert asked("sleep", seconds=2.0, for_s=60).failure == "timeout"


@pytest.mark.full
@pytest.mark.parametrize(("seconds", "for_s"), [(LONG, 0), (5.0, LONG)])
def test_what_a_child_has_started_ends_with_it(
    seconds: float, for_s: float, tmp_path: Path
) -> None:
    path = tmp_path / "pid"
    asked("beget", seconds=seconds, for_s=for_s, path=str(path))
    wait_until_gone(int(path.read_text()))


@pytest.mark.parametrize("to", [1, 2])
def test_a_child_that_prints_without_end_is_stopped_at_a_size(to: int) -> None:
    reply = asked("speak", to=to)
    assert reply.failure == "output"
    assert f"more than {MOST_PRINTED >> 20} MiB" in reply.message


def test_a_reply_may_be_large_but_not_larger_than_what_is_printed() -> None:
    assert len(asked("tell", bytes=MOST_PRINTED // 2).message) == MOST_PRINTED // 2
    assert asked("tell", bytes=MOST_PRINTED).failure == "output"


def test_a_child_that_ends_without_a_reply_has_crashed() -> None:
    reply = asked("leave")
    assert (reply.failure, "without a reply" in reply.message) == ("crash", True)


def test_a_child_that_raises_an_error_is_reported_without_a_traceback() -> None:
    reply = asked("nothing that it can do")
    assert reply.failure == "crash"
    assert reply.message.splitlines() == [
        "the child ended with exit code 1 in stage start",
        "KeyError: 'nothing that it can do'",
    ]


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), 1e30, -1.0, 0.0])
def test_a_limit_that_is_none_is_refused(seconds: float) -> None:
    with pytest.raises(LimitError, match=re.escape(f"seconds={seconds:g}:")):
        verify("module {}", problem=SQUARE, seconds=seconds)
    with pytest.raises(LimitError, match="at most"):
        prove_script(SQUARE, "module {}", seconds=seconds)
    with pytest.raises(LimitError, match="at most"):
        prove(SQUARE, schedule(*IN_PLACE), seconds=seconds)
    with pytest.raises(LimitError, match="at most"):
        transform(SQUARE, "module {}", seconds=seconds)


LIMITED = """
import resource
from tilewise.kernels.system.limited_child import limit
limit(0.5, 1 << 30)
print(resource.getrlimit(resource.RLIMIT_AS)[0], resource.getrlimit(resource.RLIMIT_CORE)[0])
import sys
sys.stdout.flush()
while True:
    pass
"""


def test_a_child_whose_parent_cannot_stop_it_ends_by_its_processor_time() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED],
        env=child_environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == -signal.SIGXCPU
    assert done.stdout.split() == [str((1 << 30) + LIBRARIES), "0"]
