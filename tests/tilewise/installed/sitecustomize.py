"""What Python imports when it starts below `run_all`: most of what is installed is hidden."""

import os
import sys

OWN = ("kernels", "search", "service", "tilewise", "migrations", "tests")
BASE = (
    *("httpx", "httpcore", "h11", "anyio", "sniffio", "idna", "certifi", "typing_extensions"),
    *("rich", "pygments", "markdown_it", "mdurl"),
)
"""What `pip install .` installs."""

VISIBLE = {*sys.stdlib_module_names, *OWN, *BASE}
VISIBLE.update(filter(None, os.environ.get("TILEWISE_TEST_MODULES", "").split(",")))


class Hiding:
    """Finds no module that the base package does not install."""

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> None:
        """Raise ModuleNotFoundError for what is hidden."""
        top = name.partition(".")[0]
        if top not in VISIBLE and not top.startswith("__editable__"):
            raise ModuleNotFoundError(f"No module named {top!r}", name=top)


sys.meta_path.insert(0, Hiding())
