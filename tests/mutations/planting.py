"""Small bugs that are planted in a copy of the checkout, and the tests that are run on them."""

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("mutations.toml")
SHORT, FULL = "not full", "full and not long"
NOTHING_COLLECTED = 5
USAGE_ERRORS = (3, 4)
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)

Outcome = Literal["make test", "make test-all", "survived"]


@dataclass(frozen=True)
class Mutation:
    """A bug: one snippet of one file, replaced.

    Attributes:
        id: its name in the list and in results.
        file: path from the root of the checkout.
        find: occurs once in the file.
        replace: what stands in its place.
        breaks: what goes wrong then.
        tests: paths below `tests`, of files that are likely to catch it.
    """

    id: str
    file: str
    find: str
    replace: str
    breaks: str
    tests: tuple[str, ...]

    @property
    def digest(self) -> str:
        """Return a digest of all of it, by which stored results are known to be of it."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:16]

    @property
    def package(self) -> str:
        """Return the top-level package of its file; migrations are part of the service."""
        top = self.file.partition("/")[0]
        return "service" if top == "migrations" else top

    def planted(self, text: str) -> str:
        """Return the text of the file with the bug.

        Raises:
            ValueError: the snippet does not occur exactly once.
        """
        count = text.count(self.find)
        if count != 1:
            raise ValueError(f"{self.id}: {self.file} has the snippet {count} times, not once")
        return text.replace(self.find, self.replace)

    def mirror(self, root: Path) -> str | None:
        """Return the folder of tests that mirrors the file's package; None if that is too large."""
        folder = Path("tests") / Path(self.file).parent
        while not (root / folder).is_dir():
            folder = folder.parent
        return str(folder) if len(folder.parts) > 2 else None


_stamps = count(1)
"""Times of planted files, each once: Python tells compiled copies apart by seconds and sizes."""


@dataclass(frozen=True)
class Result:
    """What became of a planted bug."""

    outcome: Outcome
    test: str
    seconds: float


def mutations() -> list[Mutation]:
    """Return the bugs of the list."""
    found = tomllib.loads(LIST.read_text())["mutation"]
    return [Mutation(**{**one, "tests": tuple(one["tests"])}) for one in found]


def copy_checkout(to: Path) -> None:
    """Copy what git tracks or would track; nothing is planted in the checkout itself."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    for name in filter(None, listed.stdout.split("\0")):
        if os.path.lexists(ROOT / name):
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name, follow_symlinks=False)


@dataclass(frozen=True)
class Suite:
    """Runs pytest in a copy of the checkout.

    Attributes:
        root: of the copy.
        limit_s: after which a run counts as failed: bugs may wait for ever.
    """

    root: Path
    limit_s: float

    def failure(self, paths: Sequence[str], mark: str, ignored: Sequence[str] = ()) -> str | None:
        """Return the first test of these that fails; None if all pass or none has the mark."""
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", mark, "-p", "no:cacheprovider"]
        command += [f"--ignore={path}" for path in ignored]
        environment = {**os.environ, "PYTHONPATH": str(self.root)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # tests start hundreds of processes
        process = subprocess.Popen(
            [*command, *paths], cwd=self.root, env=environment,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip
        try:
            said, _ = process.communicate(timeout=self.limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return f"no end within {self.limit_s:.0f} s"
        if process.returncode in USAGE_ERRORS:
            raise RuntimeError(said)
        if process.returncode in (0, NOTHING_COLLECTED):
            return None
        named = _FAILED.search(said)
        return named[1] if named else f"pytest ended with {process.returncode}"


def _stages(
    one: Mutation, root: Path, *, only_named: bool
) -> Iterator[tuple[list[str], str, list[str], Outcome]]:
    """Paths, mark and files that are left out; the cheapest first."""
    named, mirror = [f"tests/{path}" for path in one.tests], one.mirror(root)
    yield named, SHORT, [], "make test"
    around = [mirror] if mirror and not only_named else []
    if around:
        yield around, SHORT, named, "make test"
    yield list(dict.fromkeys([*named, *around])), FULL, [], "make test-all"


def plant(one: Mutation, suite: Suite, *, only_named: bool = False) -> Result:
    """Plant a bug, run the tests that are nearest to it, and take it out again.

    Full tests run only when those of `make test` pass.
    """
    path, began = suite.root / one.file, time.monotonic()
    backup = path.with_name(f"{path.name}.original")
    shutil.copy2(path, backup)
    try:
        path.write_text(one.planted(backup.read_text()))
        os.utime(path, (stamp := next(_stamps), stamp))
        for paths, mark, ignored, outcome in _stages(one, suite.root, only_named=only_named):
            failed = suite.failure(paths, mark, ignored)
            if failed is not None:
                return Result(outcome, failed, time.monotonic() - began)
        return Result("survived", "", time.monotonic() - began)
    finally:
        backup.replace(path)  # with its old time
