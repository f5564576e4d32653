"""Finals that are brief, for tests that do not ask how surely a schedule is the fastest.

`tests.search.finals` asks that. Finals time what is small for three seconds in each of two
processes, and longer where others preempt them, as beside other tests.
"""

import os
from pathlib import Path

FINALS_S = 0.3


def python_path(*folders: Path) -> str:
    """A value of PYTHONPATH with which each Python, and what it starts, has brief finals."""
    inherited = os.environ.get("PYTHONPATH")
    here = Path(__file__).parent
    return os.pathsep.join([*map(str, (*folders, here)), *([inherited] if inherited else [])])
