"""What commands need installed: the modules of each extra, and the one sentence for what is not."""

from collections.abc import Mapping
from importlib.util import find_spec

from tilewise.errors import TilewiseError

OR_SERVER = ", or give --server URL"
BASE = ""
"""The extra of what the base package runs."""

MODULES: Mapping[str, tuple[str, ...]] = {
    BASE: (),
    "kernels": ("numpy", "numba", "iree.compiler", "iree.runtime"),
    "search": ("optuna", "cmaes"),
    "service": (
        *("fastapi", "uvicorn", "sqlalchemy", "alembic", "prometheus_client", "pydantic_settings"),
        *("structlog", "jinja2", "pygments", "python_multipart", "vl_convert"),
    ),
    "cluster": ("distributed",),
    "peers": ("torch",),
    "gp": ("torch", "scipy"),
    "onnx": ("onnx",),
    "postgres": ("psycopg",),
    "telemetry": ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"),
}
"""The modules that each extra of `pyproject.toml` installs; a test compares the two."""

INCLUDED = {
    "search": "kernels",
    "service": "search",
    "cluster": "service",
    "peers": "service",
    "onnx": "kernels",
}
"""The extra that another one installs as well."""


def lacking(extra: str) -> list[str]:
    """Return the modules of an extra, and of the extras that it includes, that are not here."""
    below = lacking(INCLUDED[extra]) if extra in INCLUDED else []
    return below + [module for module in MODULES[extra] if not is_present(module)]


def require(module: str, by: str, extra: str, otherwise: str = "") -> None:
    """Raise TilewiseError unless a module can be imported, which a child process will import.

    The arguments are those of `not_installed`.
    """
    if not is_present(module):
        raise TilewiseError(not_installed(by, module, extra, otherwise))


def is_present(module: str) -> bool:
    """Whether `module` can be imported, without importing more than its parent."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def not_installed(by: str, module: str, extra: str, otherwise: str = "") -> str:
    """Say what to install.

    Args:
        by: what needs the module, such as `tilewise asm`.
        module: that cannot be imported.
        extra: of this distribution.
        otherwise: another way out.
    """
    return f"{by} needs {module}; install tilewise[{extra}]{otherwise}"
