"""Commands of the compose file as processes, on a system that is read-only to them."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.deployment.compose import ROOT, Json

# Root needs no user namespace, in which it could not reach what belongs to others.
UNSHARE = ["unshare", "-m" if os.geteuid() == 0 else "-rm", "sh", "-c"]
HOSTS = ("scheduler", "service")
ALIASES = ("worker-1.cluster", "worker-2.cluster")

# Makes the system read-only but for the folders before `--`, and becomes the command after it.
SEAL = """
set -e
while [ "$1" != -- ]; do mount --bind "$1" "$1"; shift; done
shift
for folder in "$SOURCES" "$PREFIX"; do
  mount --bind "$folder" "$folder"
  mount -o remount,bind,ro "$folder"
done
mount -o remount,bind,ro /
exec "$@"
"""


def can_seal() -> bool:
    """Whether this user may make a file system of a process read-only."""
    if shutil.which("unshare") is None:
        return False
    command = [*UNSHARE, "mount -o remount,bind,ro /"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@dataclass
class Containers:
    """Runs commands of services as their images would."""

    folder: Path
    database: str
    ports: Mapping[str, str]
    is_sealed: bool
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.programs = self.folder / "bin"
        self.programs.mkdir()
        for name in ("tilewise", "python"):
            module = ["-m", "tilewise"] if name == "tilewise" else []
            words = " ".join([sys.executable, "-P", *module])
            (self.programs / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
            (self.programs / name).chmod(0o755)
        for name in ("tmp", "cache", "tokens"):
            (self.folder / name).mkdir()

    def command(self, words: list[str]) -> list[str]:
        """A command with what is here in the place of hosts, ports and mounts."""
        here = [self._here(word) for word in words]
        if not self.is_sealed:
            return here
        folders = [str(self.folder / name) for name in ("tmp", "cache", "tokens")]
        return [*UNSHARE, SEAL, "sh", *folders, "--", *here]

    def environment(self, service: Json) -> dict[str, str]:
        """The environment of a service on top of what its image sets."""
        given = {name: self._here(value) for name, value in service.get("environment", {}).items()}
        if "TILEWISE_DB" in given:
            given["TILEWISE_DB"] = self.database
        image = {
            "PATH": f"{self.programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "PYTHONDONTWRITEBYTECODE": "1",
            "HOME": str(self.folder / "tmp"),
            "TMPDIR": str(self.folder / "tmp"),
            "TILEWISE_CACHE_DIR": str(self.folder / "cache"),
            "SOURCES": str(ROOT),
            "PREFIX": sys.prefix,
        }
        return {**image, **given}

    def _here(self, text: str) -> str:
        text = text.replace("/tokens/", f"{self.folder}/tokens/")
        text = text.replace("/read_only_role.sql", f"{ROOT}/examples/grafana/read_only_role.sql")
        if text in ALIASES:
            return "127.0.0.1"
        for host in HOSTS:
            for form in ("//{}:", '"{}"'):
                text = text.replace(form.format(host), form.format("127.0.0.1"))
        for port, free in self.ports.items():
            text = text.replace(port, free)
        return text

    def run(self, service: Json, **more: str) -> subprocess.CompletedProcess[str]:
        """Run the command of a service to its end."""
        return self._run(service["command"], {**self.environment(service), **more})

    def check(self, service: Json, **more: str) -> bool:
        """Whether a service's health check passes."""
        kind, *words = service["healthcheck"]["test"]
        command = ["sh", "-c", *words] if kind == "CMD-SHELL" else words
        environment = {**self.environment(service), **more}
        done = self._run(command, environment)
        return done.returncode == 0

    def _run(self, words: list[str], environment: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(words), env=environment, capture_output=True, text=True, check=False,
            timeout=120, cwd=self.folder / "tmp",
        )  # fmt: skip

    def start(self, service: Json, *more: str) -> subprocess.Popen[bytes]:
        """Start the command of a service."""
        started = subprocess.Popen(
            self.command([*service["command"], *more]),
            env=self.environment(service),
            cwd=self.folder / "tmp",
            stdin=subprocess.DEVNULL,
        )
        self.running.append(started)
        return started

    def stop(self) -> list[int]:
        """End everything as Compose does; how each has ended."""
        for one in self.running:
            one.terminate()
        ended = [one.wait(60) for one in self.running]
        self.running.clear()
        return ended
