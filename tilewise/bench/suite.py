"""Suite files: a name, a source, and problems with their counts."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewise.errors import BadInputError
from tilewise.kernels.errors import ProblemError
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.quoting import quoted

MOST_COUNT = 10**9


class SuiteError(BadInputError):
    """A suite file cannot be read; the message names the file and the problem's index."""


@dataclass(frozen=True)
class SuiteEntry:
    """One problem of a suite, how often it occurs, and its name in the workload."""

    problem: Problem
    count: int = 1
    label: str = ""


@dataclass(frozen=True)
class Suite:
    """A workload as a list of problems."""

    name: str
    source: str
    entries: tuple[SuiteEntry, ...]


def read_suite(path: Path) -> Suite:
    """Read a suite file; raise SuiteError for any fault.

    Each problem is a string, or its JSON object with `count` and `label`.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise SuiteError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise SuiteError(f"{path} is not JSON: {error}") from error
    problems = content.get("problems") if isinstance(content, dict) else None
    if not isinstance(problems, list):
        raise SuiteError(f'{path}: a suite is an object with a list "problems"')
    if not problems:
        raise SuiteError(f"{path}: problems is empty")
    return Suite(
        name=_text(path, content, "name", path.stem),
        source=_text(path, content, "source", ""),
        entries=tuple(_entry(path, index, one) for index, one in enumerate(problems)),
    )


def _text(path: Path, content: dict[str, Any], key: str, default: str) -> str:
    value = content.get(key, default)
    if not isinstance(value, str) or not value.isprintable():
        raise SuiteError(f"{path}: {key} is not a text that can be printed")
    return value


def _entry(path: Path, index: int, given: object) -> SuiteEntry:
    try:
        if isinstance(given, str):
            return SuiteEntry(parse_problem(given))
        if not isinstance(given, dict):
            raise SuiteError("neither a problem string nor an object")
        keys = dict(given)
        count, label = keys.pop("count", 1), keys.pop("label", "")
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MOST_COUNT:
            raise SuiteError(f"count={quoted(count)} is not a whole number from 1 to {MOST_COUNT}")
        if not isinstance(label, str) or not label.isprintable():
            raise SuiteError(f"label={quoted(label)} is not a text that can be printed")
        return SuiteEntry(parse_problem(keys), count, label)
    except (ProblemError, SuiteError) as error:
        raise SuiteError(f"{path}: problems[{index}]: {error}") from error
