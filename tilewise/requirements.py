"""What a command needs installed, and the one sentence for what is not."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from tilewise.errors import TilewiseError


@contextmanager
def needed(by: str, extra: str, otherwise: str = "") -> Iterator[None]:
    """TilewiseError in place of a ModuleNotFoundError: what to install.

    Args:
        by: what needs the import inside, as `asm here`.
        extra: of this distribution.
        otherwise: another way out.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise TilewiseError(_message(by, str(error.name), extra, otherwise)) from error


def require(package: str, by: str, extra: str) -> None:
    """TilewiseError unless a module can be imported, which a child process will import."""
    if not is_present(package):
        raise TilewiseError(_message(by, package.partition(".")[0], extra, ""))


def is_present(module: str) -> bool:
    """Whether `module` can be imported, without importing more than its parent."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _message(by: str, package: str, extra: str, otherwise: str) -> str:
    return f"{by} needs {package}; install tilewise[{extra}]{otherwise}"
