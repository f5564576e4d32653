"""A child that tells when it was asked, and answers once it is allowed to.

As a program it is the one that asks: `python -m tests.search.runner.frozen_child FOLDER SECONDS`.
"""

import sys
import time
from pathlib import Path

from tilewise.search.runner.child.compiler import answer_all
from tilewise.search.runner.child_process import ChildProcess
from tilewise.search.runner.protocol import CandidateFailureError, CompileReply


def work(setup: dict[str, str]) -> CompileReply:
    folder = Path(setup["folder"])
    (folder / "asked").touch()
    while not (folder / "allowed").exists():
        time.sleep(0.01)
    return CompileReply(42.0)


def ask(folder: Path, limit_s: float) -> str:
    """What became of a request to a child in `folder`."""
    setup = {"do": "setup", "folder": str(folder)}
    child = ChildProcess("tests.search.runner.frozen_child", setup, 60.0, 1 << 30, {})
    child.start()
    assert child.pid is not None
    (folder / "child.new").write_text(str(child.pid))
    (folder / "child.new").rename(folder / "child")
    try:
        return str(int(child.ask({"do": "work"}, limit_s, CompileReply).compile_s))
    except CandidateFailureError as failure:
        return failure.kind
    finally:
        child.close()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(ask(Path(sys.argv[1]), float(sys.argv[2])))
    else:
        answer_all(dict, {"work": work}.__getitem__)
