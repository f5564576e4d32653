"""What commands print, for people or as JSON."""

import json
import sys
from typing import Any

from tilewise.cli import render
from tilewise.kernels.problem import parse_problem

Json = dict[str, Any]


def print_result(result: Json, *, as_json: bool, with_machine: bool = False) -> None:
    """The contract's result object; as text with the facts of its machine if asked."""
    text = json.dumps(result, indent=2) + "\n" if as_json else render.result(result)
    if with_machine and not as_json:
        text += render.machine(result)
    sys.stdout.write(text)


def print_mapping(mapping: Json, *, as_json: bool) -> None:
    """Facts by name."""
    sys.stdout.write(json.dumps(mapping, indent=2) + "\n" if as_json else render.mapping(mapping))


def named(problem: str, **parts: str) -> str:
    """Texts of a problem as a JSON object."""
    found = {"problem": parse_problem(problem).canonical, **parts}
    return json.dumps(found, indent=2) + "\n"
