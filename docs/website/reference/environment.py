"""Environment variables: the service's, from its settings, and those that others read."""

import inspect
import re

from docs.website.reference.markdown import code, one_line, table
from tilewise.service.settings import Settings

READ_ELSEWHERE = {
    "TILEWISE_CACHE_DIR": "folder for compiled code, printed kernels and fetched texts; default: "
    "in the user's cache folder",
    "TILEWISE_EXTENSIONS": "modules, separated by commas, that add steps, instructions, "
    "micro-kernels or search parameters",
    "TILEWISE_SERVER": "URL of a service to which every command is sent, as `--server` does",
    "TILEWISE_TOKEN": "token that the command line and the Python clients show to a service",
    "OTEL_EXPORTER_OTLP_ENDPOINT": "turns traces on, and says where they go",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "the same, for traces alone",
    "OTEL_TRACES_EXPORTER": "turns traces on, over OTLP whatever it says; `none` turns them off",
}
COMPUTED_DEFAULTS = {"db": "a SQLite file in the user's data folder"}
_ATTRIBUTE = re.compile(r"^    (\w+): (.*?)(?=^    \w+: |\Z)", re.MULTILINE | re.DOTALL)


def page() -> str:
    """One table for the service and one for the rest."""
    names = ["variable", "meaning", "default"]
    others = [[code(name), meaning] for name, meaning in READ_ELSEWHERE.items()]
    return "\n".join([
        "## Of the service and of searches\n",
        "An empty value counts as none. `--db` and other options win over the variable.\n",
        table(names, _settings()),
        "## Of the command line, the clients and telemetry\n",
        table(names[:2], others),
    ])  # fmt: skip


def _settings() -> list[list[str]]:
    prefix = Settings.model_config["env_prefix"]
    meanings = dict(_ATTRIBUTE.findall(inspect.cleandoc(Settings.__doc__ or "")))
    rows = []
    for name, field in Settings.model_fields.items():
        variable = f"{prefix}{name}".upper()
        meaning = re.sub(rf"\s*\(`{variable}`\)", "", one_line(meanings[name])).rstrip(".")
        rows.append([code(variable), meaning, _default(name, field.default)])
    return rows


def _default(name: str, default: object) -> str:
    shown = str(default).lower() if isinstance(default, bool) else str(default)
    return COMPUTED_DEFAULTS.get(name) or (code(shown) if shown else "none")
