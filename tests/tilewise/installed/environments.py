"""A wheel and an sdist of the checkout, and fresh environments to install them in.

The dependencies in environments are links to those of the tests: nothing is downloaded.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path
from zipfile import Path as ZipPath
from zipfile import ZipFile

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.tilewise.installed import ROOT

COPIED = re.compile(r"^COPY ((?!--).+) \S+$", re.MULTILINE)
"""The instructions of the Dockerfile that copy from the checkout."""


@dataclass(frozen=True)
class Distributions:
    """The files of a release, made as `python -m build` makes them, the wheel from the sdist."""

    wheel: Path
    sdist: Path
    of_image: Path
    log: str


def build_once(folder: Path) -> Distributions:
    """Build in copies of the checkout, as `python -m build` and the Dockerfile do."""
    log = folder / "log"
    if not log.exists():
        log.write_text(_build(folder))
    (wheel,), (sdist,) = ((folder / "release").glob(f"*{end}") for end in (".whl", ".tar.gz"))
    (of_image,) = (folder / "image").glob("*.whl")
    return Distributions(wheel, sdist, of_image, log.read_text())


def _build(folder: Path) -> str:
    logs = []
    for name, form in (("release", ()), ("image", ("--wheel",))):
        copied = copy_sources(folder / f"sources-{name}")
        leave_an_old_build(copied)
        done = subprocess.run(
            [sys.executable, "-m", "build", "--no-isolation", *form, "-o", folder / name, copied],
            env=without_python_settings(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout
        logs.append(done.stdout)
    return "".join(logs)


def copy_sources(folder: Path) -> Path:
    """Copy what the Dockerfile copies; links stay links, as they do in an image."""
    folder.mkdir(parents=True)
    for names in COPIED.findall((ROOT / "Dockerfile").read_text()):
        for name in names.split():
            if (ROOT / name).is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=ignored)
            else:
                shutil.copy(ROOT / name, folder)
    return folder


def leave_an_old_build(sources: Path) -> None:
    """Leave what a build of version 0.1.0 left: packages at the top, and a list of files."""
    for name in ("kernels", "search", "service", "migrations"):
        old = sources / "build" / "lib" / name
        old.mkdir(parents=True)
        (old / "__init__.py").write_text("")
    listed = sources / "tilewise.egg-info" / "SOURCES.txt"
    listed.parent.mkdir()
    listed.write_text("kernels/__init__.py\nservice/dashboard/static/style.css\n")


def without_python_settings() -> dict[str, str]:
    """Return this process's environment without variables that change Python or Tilewise."""
    ours = ("PYTHON", "TILEWISE_")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


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
LISTENING = "listening on "


@dataclass(frozen=True)
class Ended:
    """What a command did: its exit code, and what it printed."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Environment:
    """An environment of its own in a folder, with the working folder `work` outside of it."""

    folder: Path
    work: Path

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    @property
    def packages(self) -> Path:
        """Its site-packages."""
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return self.folder / "lib" / version / "site-packages"

    def pip(self, *arguments: str | Path) -> Ended:
        """Run the tests' pip on it."""
        return self._run(sys.executable, "-m", "pip", "--python", self.python, *arguments)

    def python_code(self, code: str) -> Ended:
        """Run a program."""
        return self._run(self.python, "-c", code)

    def tilewise(self, *arguments: str | Path, **variables: str) -> Ended:
        """Run a command by the script that pip installed."""
        return self._run(self.folder / "bin" / "tilewise", *arguments, **variables)

    def _run(self, *command: str | Path, **variables: str) -> Ended:
        done = subprocess.run(
            command, cwd=self.work, env=self.variables() | variables, capture_output=True,
            text=True, check=False,
        )  # fmt: skip
        return Ended(done.returncode, done.stdout, done.stderr)

    def run_all(self, commands: list[list[str]], folder: Path, **variables: str) -> list[Ended]:
        """Run commands one after the other in one process, in `folder`."""
        done = subprocess.run(
            [self.python, "-c", PROGRAM], input=json.dumps(commands), cwd=folder,
            env=self.variables() | variables, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return [Ended(*one) for one in json.loads(done.stdout)]

    @contextlib.contextmanager
    def serving(self, database: str) -> Iterator[str]:
        """Run `tilewise serve`, which takes jobs only; its URL, once it listens."""
        process = subprocess.Popen(
            [self.folder / "bin" / "tilewise", "serve", "--port", "0", "--workers", "0"],
            cwd=self.work, env=self.variables() | {"TILEWISE_DB": database},
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            said = []
            for line in process.stderr:
                said.append(line)
                if LISTENING in line:
                    break
            else:
                raise AssertionError("".join(said))
            yield line.partition(LISTENING)[2].split()[0].rstrip('",')
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)
        finally:
            process.kill()
            process.communicate()

    def variables(self) -> dict[str, str]:
        """Return the variables of its processes."""
        return without_python_settings() | {"TILEWISE_CACHE_DIR": str(self.work / "cache")}

    def tree(self) -> dict[str, bytes | str]:
        """Return each file with its content, and each link with its target."""
        found: dict[str, bytes | str] = {}
        for folder, folders, files in os.walk(self.folder):
            for path in (Path(folder, name) for name in [*folders, *files]):
                if path.is_symlink():
                    found[str(path)] = str(path.readlink())
                elif path.is_file() and path.parent != self.packages / "__pycache__":
                    found[str(path)] = path.read_bytes()
        return found


def make(folder: Path, wheel: Path, extras: frozenset[str], *others: str) -> Environment:
    """Make an environment with what a wheel of ours requires, but without the wheel."""
    made = Environment(folder / "environment", folder / "work")
    made.work.mkdir(parents=True)
    venv.create(made.folder, symlinks=True)
    for one in [*required(wheel, extras), *map(distribution, others)]:
        for top in {path.parts[0] for path in one.files or ()} - {"..", "__pycache__"}:
            with contextlib.suppress(FileExistsError):  # a namespace of several distributions
                (made.packages / top).symlink_to(Path(str(one.locate_file(top))))
    return made


def required(wheel: Path, extras: frozenset[str]) -> list[Distribution]:
    """Return the installed distributions that a wheel requires, at any depth."""
    with ZipFile(wheel) as archive:
        (info,) = {name.split("/")[0] for name in archive.namelist() if ".dist-info/" in name}
        ours = PathDistribution(ZipPath(archive, f"{info}/"))  # type: ignore[arg-type]
        waiting = {("tilewise", extra) for extra in ("", *extras)}
        seen = set(waiting)
        while waiting:
            name, extra = waiting.pop()
            for text in (ours if name == "tilewise" else distribution(name)).requires or ():
                needed = Requirement(text)
                if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                    named = canonicalize_name(needed.name)
                    new = {(named, one) for one in ("", *needed.extras)} - seen
                    waiting |= new
                    seen |= new
    return [distribution(name) for name in sorted({name for name, _ in seen} - {"tilewise"})]
