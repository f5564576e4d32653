"""Runs a module of this code as a child that ends with its parent.

    python -P -m tilewise.kernels.system.start PARENT MODULE ARGUMENT...

The tie to the parent comes before slow imports; a parent that has died by then is detected by its
pid. Extensions are imported before the module.
"""

import runpy
import sys

from tilewise.kernels.errors import ExtensionError
from tilewise.kernels.system.children import die_with_parent
from tilewise.kernels.system.extensions import load_extensions


def main() -> None:
    """Tie this process to its parent, and become the module."""
    parent, module, *arguments = sys.argv[1:]
    die_with_parent(int(parent))
    try:
        load_extensions()
    except ExtensionError as error:
        raise SystemExit(str(error)) from error
    sys.argv[1:] = arguments
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
