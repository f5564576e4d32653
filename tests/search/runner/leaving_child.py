"""A child that starts a process of its own, tells its number, and dies with a code."""

import os
import subprocess
import sys
from pathlib import Path

from tilewise.search.runner.child.compiler import answer_all
from tilewise.search.runner.protocol import Reply

CODE = 3


def leave(setup: dict[str, str]) -> Reply:
    left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(setup["note"]).write_text(str(left.pid))
    os._exit(CODE)


if __name__ == "__main__":
    answer_all(dict, lambda _what: leave)
