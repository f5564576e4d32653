"""Runs a module of this code as a child that ends with its parent.

    python -P -m tilewise.kernels.system.start PARENT MODULE ARGUMENT...

The wish to die with the parent comes before anything is imported that takes time. A parent that
has died by then is seen by its pid.
"""

import runpy
import sys

from tilewise.kernels.system.children import die_with_parent


def main() -> None:
    """Tie this process to its parent, and become the module."""
    parent, module, *arguments = sys.argv[1:]
    die_with_parent(int(parent))
    sys.argv[1:] = arguments
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
