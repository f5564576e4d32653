"""Commands of pages are run as a session of a shell, and print what is shown."""

import contextlib
import functools
import importlib.util
import io
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.docs.commands import ROOT, Command, agrees, commands, heads, pages
from tests.docs.pages import EVERYWHERE, NOT_RUN, PAGES, Page
from tests.short_timings import python_path
from tilewise.cli.parser import make_parser

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


ALL = {page: commands(page, (ROOT / page).read_text()) for page in pages()}
RUN = {page: [one for one in found if not why_not_run(one)] for page, found in ALL.items()}
SHOWN = [one for found in ALL.values() for one in found]


@dataclass(frozen=True)
class Session:
    page: str
    ran: Ran
    folder: Path


def run_page(page: str, folder: Path, cache: Path, **more: str) -> Session:
    working = folder / "folder"
    working.mkdir()
    database = f"sqlite:///{folder / 'results.db'}"
    environment = {"TILEWISE_DB": database, "TILEWISE_CACHE_DIR": str(cache), **more}
    return Session(page, run(RUN[page], PAGES.get(page, Page()), working, environment), folder)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def readme(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Session:
    return run_page("README.md", tmp_path_factory.mktemp("readme"), cache)


@pytest.fixture
def session(page: str, readme: Session, cache: Path, tmp_path, request) -> Session:
    if page == readme.page:
        return readme
    known = PAGES.get(page, Page())
    if not known.is_empty:
        shutil.copy(readme.folder / "results.db", tmp_path)
    if not known.needs_postgresql:
        return run_page(page, tmp_path, cache)
    empty = request.getfixturevalue("new_postgresql")()
    return run_page(page, tmp_path, cache, POSTGRESQL=empty)


@pytest.mark.full
@pytest.mark.skipif(shutil.which("curl") is None, reason="the pages need curl, which is absent")
@pytest.mark.parametrize("page", [page for page, found in RUN.items() if found])
def test_commands_do_what_the_page_shows(page: str, session: Session) -> None:
    ran = session.ran
    last = RUN[page][max(len(ran.printed), 1) - 1].text
    is_slower = ran.code == 3 and "--flavor iree" in last and "IREE alone is faster" in ran.errors
    assert ran.code == 0 or is_slower, f"{page}: {last}\n{ran.errors[-3000:]}"
    for command, printed in zip(RUN[page], ran.printed[: -1 if is_slower else None], strict=False):
        if command.printed:
            assert agrees(command, printed), (
                f"{page}: {command.text} is shown with {heads(command.printed)}, "
                f"and prints {heads(printed)}:\n{printed}"
            )


def test_what_is_not_run_or_replaced_is_on_a_page() -> None:
    assert sum(map(len, RUN.values())) >= 45
    for begins in NOT_RUN:
        assert any(command.text.startswith(begins) for command in SHOWN), begins
    for shown in EVERYWHERE:
        assert any(shown in one.text for found in RUN.values() for one in found), shown
    for page, known in PAGES.items():
        for shown in known.replaced:
            assert any(shown in command.text for command in RUN[page]), (page, shown)


@pytest.mark.parametrize(
    "command", [one for one in SHOWN if why_not_run(one)], ids=lambda one: f"{one.page}: {one.text}"
)
def test_a_command_that_is_not_run_exists(command: Command) -> None:
    words = shlex.split(command.text, comments=True)
    if words[0] == "tilewise":
        make_parser().parse_args(words[1:])
    elif words[0] == "make":
        targets = re.findall(r"^([a-z][a-z -]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert words[1] in " ".join(targets).split()
    elif words[:3] == ["python", "-m", "pytest"]:
        assert all((ROOT / path).is_dir() for path in words[3:])
    elif words[:2] == ["python", "-m"]:
        assert importlib.util.find_spec(words[2])


INLINE = re.compile(r"`tilewise ([a-z][a-z-]*)([^`]*)`")


def test_commands_in_sentences_exist_with_their_options() -> None:
    found = [
        (page, *match) for page in pages() for match in INLINE.findall((ROOT / page).read_text())
    ]
    assert len(found) > 30
    for page, name, rest in found:
        done = _help(name)
        for option in re.findall(r"--[a-z][a-z0-9-]*", rest):
            assert option in done, f"{page}: tilewise {name} has no {option}"


@functools.cache
def _help(name: str) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), pytest.raises(SystemExit) as left:
        make_parser().parse_args([name, "--help"])
    assert left.value.code == 0, f"there is no command {name}"
    return printed.getvalue()
