"""A wheel and an sdist of the checkout, and small wheels of other names."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

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
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "TILEWISE_"))
    }
