"""Runs the commands of a page as one session of a shell, and tells what each printed."""

import os
import re
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.brief import python_path
from tests.docs.commands import ROOT, Command
from tests.docs.told import EVERYWHERE, NOT_RUN, Page

MARK = "=== command "
LIMIT_S = 240
BUDGET = "--trials 2"
# What was started ends with the session, in its own way.
BEGIN = "set -eu -o pipefail\ntrap 'set +e; kill $(jobs -p) 2>/dev/null; wait' EXIT"
# A service has to answer before the next command asks it.
WAIT = "until curl -sf http://127.0.0.1:{port}/readyz >/dev/null; do sleep 0.1; done"


@dataclass(frozen=True)
class Ran:
    """What the session of a page did."""

    printed: list[str]
    code: int
    errors: str


def why_not_run(command: Command) -> str:
    """The reason for which no test runs a command; empty for one that is run."""
    return next((why for begins, why in NOT_RUN.items() if command.text.startswith(begins)), "")


def changed(text: str, page: Page) -> str:
    """A command as a test runs it."""
    for replaced in (page.replaced, EVERYWHERE):
        for shown, meant in replaced.items():
            text = text.replace(shown, meant)
    return re.sub(r"\btilewise tune (\S+)", rf"tilewise tune \1 {BUDGET}", text)


def run(commands: list[Command], page: Page, folder: Path, environment: dict[str, str]) -> Ran:
    """Run commands one after the other in a folder; the first that fails is the last."""
    lines = [BEGIN, _waiting(page.before)]
    for number, command in enumerate(commands):
        lines += [f"echo; echo '{MARK}{number}'", _waiting(changed(command.text, page))]
    # Files, since services would keep pipes open.
    printed, errors = folder.with_suffix(".out"), folder.with_suffix(".err")
    with printed.open("w") as out, errors.open("w") as err:
        code = _code_of("\n".join(lines), folder, {**_variables(), **environment}, (out, err))
    outputs = re.split(rf"\n{MARK}\d+\n", printed.read_text())[1:]
    return Ran(outputs, code, errors.read_text())


def _code_of(text: str, folder: Path, variables: dict[str, str], streams) -> int:
    out, err = streams
    with subprocess.Popen(
        ["bash", "-c", text], cwd=folder, env=variables, stdout=out, stderr=err,
        start_new_session=True,
    ) as shell:  # fmt: skip
        try:
            return shell.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(shell.pid, signal.SIGKILL)
            raise


def _waiting(text: str) -> str:
    """Commands, each that starts a service followed by a wait for it."""
    lines = []
    for line in text.splitlines():
        port = re.search(r"tilewise serve.*--port (\S+).*&$", line)
        lines.append(f"{line[:-1]} >/dev/null &" if line.endswith("&") else line)
        if port:
            lines.append(WAIT.format(port=port[1]))
    return "\n".join(lines)


def _variables() -> dict[str, str]:
    inherited = {name: text for name, text in os.environ.items() if "TILEWISE_" not in name}
    ports = {"PORT": str(_free_port()), "SECOND_PORT": str(_free_port())}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    modules = python_path(ROOT)
    return {**inherited, **ports, "PATH": path, "PYTHONPATH": modules, "ROOT": str(ROOT)}


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])
