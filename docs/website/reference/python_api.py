"""The Python API of `tilewise`: directives by which Sphinx renders docstrings."""

import inspect
import sys

import tilewise
import tilewise.client

INTRODUCTION = """\
`tilewise` needs httpx and rich alone. A client asks a service; [the service](../service.md) shows
one at work.
"""


def page() -> str:
    """Clients, errors, and what the clients give."""
    top = sorted(tilewise.__all__, reverse=True)
    errors = [name for name in top if issubclass(getattr(tilewise, name), Exception)]
    clients = [name for name in top if name not in errors]
    given = [name for name in tilewise.client.__all__ if name not in top]
    return "\n".join([
        INTRODUCTION,
        "## Clients\n", *(_directive("tilewise", name) for name in clients),
        "## Errors\n", *(_directive("tilewise", name, "show-inheritance") for name in errors),
        "## Results and events\n",
        "`tilewise.client` gives these. All are frozen.\n",
        *(_directive("tilewise.client", name) for name in given),
    ])  # fmt: skip


def _directive(module: str, name: str, *options: str) -> str:
    is_class = inspect.isclass(getattr(sys.modules[module], name))
    kind = f".. {'autoclass' if is_class else 'autodata'}:: {module}.{name}"
    options_text = [f"   :{option}:" for option in ("members", *options)] if is_class else []
    return "\n".join([f"### {name}\n", "```{eval-rst}", kind, *options_text, "```\n"])
