"""The Python API of `tilewise`: directives by which Sphinx renders docstrings."""

import inspect

import tilewise
import tilewise.client

INTRODUCTION = """\
`tilewise` needs httpx and rich alone. A client asks a service; [the service](../service.md) shows
one at work.
"""
OPTIONS = ":members:\n:show-inheritance:"


def page() -> str:
    """Clients, errors, and what the clients give."""
    top = [name for name in tilewise.__all__]
    given = [name for name in tilewise.client.__all__ if name not in top]
    errors = [name for name in top if _is_error(getattr(tilewise, name))]
    clients = [name for name in top if name not in errors]
    return "\n".join([
        INTRODUCTION,
        "## Clients\n", *(_object("tilewise", name) for name in sorted(clients, reverse=True)),
        "## Errors\n", *(_object("tilewise", name) for name in errors),
        "## Results and events\n",
        "`tilewise.client` gives these. All are frozen.\n",
        *(_object("tilewise.client", name) for name in given),
    ])  # fmt: skip


def _is_error(found: object) -> bool:
    return inspect.isclass(found) and issubclass(found, Exception)


def _object(module: str, name: str) -> str:
    kind = "autoclass" if inspect.isclass(getattr(__import__(module, fromlist=[name]), name)) else "autodata"
    body = [f".. {kind}:: {module}.{name}", *(f"   {line}" for line in OPTIONS.splitlines())]
    lines = body if kind == "autoclass" else body[:1]
    return "\n".join([f"### {name}\n", "```{eval-rst}", *lines, "```\n"])
