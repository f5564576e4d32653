"""Lists of problems: one per line, or the JSON of a suite."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tilewise.bench import read_suite
from tilewise.errors import BadInputError
from tilewise.kernels.errors import KernelsError
from tilewise.kernels.problem import Problem, ProblemRange

MOST_BAD_LINES = 5  # that one message names

Read = TypeVar("Read", bound=Problem | ProblemRange)


def read_list(path: str, text: str, parse: Callable[[str], Read]) -> list[Read]:
    """Return what a file names, each once, in order.

    A path that ends in `.json` is a suite; otherwise each line has a problem, and `#` a comment.
    Raises BadInputError naming the bad lines.
    """
    if path.endswith(".json"):
        found = [parse(entry.problem.canonical) for entry in read_suite(Path(path)).entries]
    else:
        found = _lines(path, text, parse)
    if not found:
        raise BadInputError(f"{path} contains no problem; write one per line")
    return list({problem.key: problem for problem in found}.values())


def _lines(path: str, text: str, parse: Callable[[str], Read]) -> list[Read]:
    found, bad = list[Read](), []
    for number, line in enumerate(text.splitlines(), 1):
        wanted = line.partition("#")[0].strip()
        if not wanted:
            continue
        try:
            found.append(parse(wanted))
        except KernelsError as error:
            bad.append(f"line {number}: {error}")
    if bad:
        more = f"; and {len(bad) - MOST_BAD_LINES} more lines" if len(bad) > MOST_BAD_LINES else ""
        raise BadInputError(f"{path}: {'; '.join(bad[:MOST_BAD_LINES])}{more}")
    return found
