"""Files that tools read: compose, constraints, documents."""

import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent


def test_compose_starts_what_exists_in_the_right_order() -> None:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    services = compose["services"]
    assert set(services) == {"database", "migrate", "service"}
    assert services["migrate"]["depends_on"] == {"database": {"condition": "service_healthy"}}
    assert services["service"]["depends_on"] == {
        "migrate": {"condition": "service_completed_successfully"}
    }
    assert services["migrate"]["command"] == ["tilewise", "db", "upgrade"]
    assert services["service"]["command"][:2] == ["tilewise", "serve"]
    urls = {services[s]["environment"]["TILEWISE_DB"] for s in ("migrate", "service")}
    assert len(urls) == 1
    assert set(compose["volumes"]) == {"results", "cache"}
    for name in ("database", "service"):
        assert "test" in services[name]["healthcheck"]


def test_compose_commands_are_accepted_by_the_command_line() -> None:
    from tilewise.cli.parser import make_parser

    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    for name in ("migrate", "service"):
        program, *arguments = compose["services"][name]["command"]
        assert program == "tilewise"
        make_parser().parse_args(arguments)


def test_compose_holds_no_password() -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    named = re.findall(r"\$\{TILEWISE_DB_PASSWORD([^}]*)\}", text)
    assert len(named) == 2
    assert all(rest.startswith(":?") for rest in named)
    password = yaml.safe_load(text)["services"]["database"]["environment"]["POSTGRES_PASSWORD"]
    assert re.fullmatch(r"\$\{[^}]*\}", password)


@pytest.mark.parametrize(("status", "healthy"), [(200, True), (503, False)])
def test_compose_health_check_of_the_service_follows_readyz(status: int, healthy: bool) -> None:
    asked: list[str] = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            pass

    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    kind, program, flag, code = compose["services"]["service"]["healthcheck"]["test"]
    assert (kind, program, flag) == ("CMD", "python", "-c")
    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        here = code.replace(":8000/", f":{server.server_port}/")
        done = subprocess.run(
            [sys.executable, "-c", here], check=False, capture_output=True, timeout=60
        )
        server.shutdown()
    assert asked == ["/readyz"]
    assert (done.returncode == 0) is healthy


def test_constraints_are_names_and_versions_alone() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", pin) for pin in pins)
    names = {pin.split("==")[0].lower().replace("_", "-") for pin in pins}
    for needed in ("numba", "llvmlite", "iree-base-compiler", "optuna", "fastapi", "sqlalchemy"):
        assert needed in names


def test_the_image_copies_every_package() -> None:
    text = (ROOT / "Dockerfile").read_text()
    for package in ("kernels", "search", "service", "tilewise", "migrations"):
        assert f"COPY {package} ./{package}" in text


def test_ci_runs_the_test_command_of_the_readme() -> None:
    assert "make test" in (ROOT / ".ci" / "run").read_text()
    assert "make test" in (ROOT / "README.md").read_text()
