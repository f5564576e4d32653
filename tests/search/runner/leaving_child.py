"""A child that starts a process of its own, tells its number, and dies with a code."""

import os
import subprocess
import sys
from pathlib import Path

from tilewise.search.runner.child.compiler import answer_all
from tilewise.search.runner.protocol import Message, Ready, Reply

CODE = 3


def answer(note: Path | None, request: Message) -> tuple[Path | None, Reply]:
    if request["do"] == "setup":
        return Path(request["note"]), Ready()
    assert note is not None
    left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    note.write_text(str(left.pid))
    os._exit(CODE)


if __name__ == "__main__":
    answer_all(answer)
