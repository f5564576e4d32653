"""The compose file as Compose reads it: anchors merged, variables put in."""

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docker-compose.yml"
DOCKERFILE = (ROOT / "Dockerfile").read_text()
Json = dict[str, Any]

SECRETS = {
    "TILEWISE_DB_PASSWORD": "databasesecret",
    "TILEWISE_READ_PASSWORD": "it's a secret of readers",
    "TILEWISE_GRAFANA_PASSWORD": "secret of grafana",
}
"""Variables that have to be set, with values that no other text contains."""

# `$$`, `${NAME:?message}` and `${NAME:-default}`; anything else with a dollar is no variable here.
_VARIABLE = re.compile(r"\$(?:(\$)|\{([A-Z0-9_]+)(?::([?-])([^}]*))?\}|(.?))")


class UnsetError(Exception):
    """A variable that has to be set is not."""


def read(variables: dict[str, str] | None = None) -> Json:
    """The file with variables put in; `SECRETS` unless told."""
    given = SECRETS if variables is None else variables
    found: Json = _filled(raw(), given)
    return found


def raw() -> Json:
    """The file with anchors merged and no variable put in."""
    found: Json = yaml.safe_load(FILE.read_text())
    return found


def services() -> dict[str, Json]:
    """Its services, with variables put in."""
    found: dict[str, Json] = read()["services"]
    return found


def _filled(value: Any, given: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {name: _filled(part, given) for name, part in value.items()}
    if isinstance(value, list):
        return [_filled(part, given) for part in value]
    return _text(value, given) if isinstance(value, str) else value


def _text(text: str, given: dict[str, str]) -> str:
    def put(found: re.Match[str]) -> str:
        dollar, name, operator, rest, other = found.groups()
        if dollar:
            return "$"
        if other is not None:
            raise ValueError(f"{text!r} has a dollar that is no variable")
        if given.get(name):
            return given[name]
        if operator != "-":
            raise UnsetError(f"{name}: {rest}")
        return rest or ""

    return _VARIABLE.sub(put, text)


def is_built(service: Json) -> bool:
    """Whether a service runs an image of the Dockerfile."""
    return "build" in service


def checked() -> dict[str, Json]:
    """The services that have a health check."""
    return {name: one for name, one in services().items() if "healthcheck" in one}
