"""Files that tools read: compose, constraints, documents."""

import re
from pathlib import Path

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
