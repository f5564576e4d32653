"""Fresh environments whose dependencies are links to those of the tests: nothing is downloaded."""

import contextlib
import json
import os
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

from tests.tilewise.installed.distributions import without_python_settings

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
            assert process.stderr is not None
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
