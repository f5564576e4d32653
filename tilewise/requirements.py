"""Modules that each extra installs, and the message for a missing one."""

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
    "peers": ("torch", "onnx", "onnxruntime"),
    "torch": ("torch",),
    "jax": ("jax",),
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
    """Return the missing modules of an extra and of the extras that it includes."""
    below = lacking(INCLUDED[extra]) if extra in INCLUDED else []
    return below + [module for module in MODULES[extra] if not is_present(module)]


def require(module: str, by: str, extra: str, otherwise: str = "") -> None:
    """Raise TilewiseError unless a module, which a child process needs, can be imported."""
    if not is_present(module):
        raise TilewiseError(not_installed(by, module, extra, otherwise))


def is_present(module: str) -> bool:
    """Return whether a module can be imported, importing only its parent."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def not_installed(by: str, module: str, extra: str, otherwise: str = "") -> str:
    """Return what to install for `by`, such as `tilewise asm`; `otherwise` is another way."""
    return f"{by} needs {module}; install tilewise[{extra}]{otherwise}"
