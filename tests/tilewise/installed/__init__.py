"""Commands where only the base package is installed, or one extra of it.

This folder goes first in `PYTHONPATH`: what `sitecustomize` hides cannot be imported, by child
processes either.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
ALLOWED = "TILEWISE_TEST_MODULES"
"""The variable with the modules of an extra that are there beside those of the base package."""

PROGRAM = """
import contextlib, io, json, sys
from tilewise.cli import main
ends = []
for arguments in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(arguments)
        except SystemExit as left:
            code = left.code
    ends.append((code, out.getvalue(), err.getvalue()))
json.dump(ends, sys.stdout)
"""


@dataclass(frozen=True)
class Ended:
    """What a command did: its exit code, and what it printed."""

    code: int
    out: str
    err: str


def run_all(
    commands: list[list[str]], folder: Path, allowed: str = "", **environment: str
) -> list[Ended]:
    """Run commands one after the other in one process, in `folder`."""
    path = os.pathsep.join((str(Path(__file__).parent), str(ROOT)))
    surroundings = {
        name: value for name, value in os.environ.items() if name != "TILEWISE_SERVER"
    } | {"PYTHONPATH": path, ALLOWED: allowed, **environment}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], input=json.dumps(commands), env=surroundings, cwd=folder,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [Ended(*one) for one in json.loads(done.stdout)]
