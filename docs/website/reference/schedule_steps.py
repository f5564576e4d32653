"""The steps of schedules: their fields, and the loop nests before and after, from docstrings."""

import inspect
from dataclasses import MISSING, Field, fields
from typing import get_args

from docs.website.reference.markdown import code, one_line, table
from tilewise.kernels.steps import STEPS, Step, Tile

INTRODUCTION = """\
A schedule is a list of steps, outermost first; read from the top, it is the loop nest. Nests are
shown before and after a step, for `C[m,n] += A[m,k] B[k,n]`. [The words of a
schedule](../schedules.md) shows how to read whole schedules.

In JSON a step is an object of its fields and `step`, its name:
"""


def page() -> str:
    """One heading for each step."""
    example = f"    {Tile('n', 64).to_json()}\n".replace("'", '"')
    return "\n".join([INTRODUCTION, example, *map(_step, STEPS.values())])


def _step(step: type[Step]) -> str:
    paragraphs = inspect.cleandoc(step.__doc__ or "").split("\n\n")
    keys = table(["field", "values", "default"], map(_field, fields(step)))
    return "\n\n".join([f"## {step.name}", *map(_paragraph, paragraphs), keys])


def _paragraph(text: str) -> str:
    is_nest = any(line.startswith("    ") for line in text.splitlines())
    return f"```text\n{text}\n```" if is_nest else one_line(text)


def _field(field: Field[object]) -> list[str]:
    values = ", ".join(map(code, get_args(field.type)))
    default = "needed" if field.default is MISSING else code(field.default)
    kind = "a number of at least 1" if field.type is int else "a dim of the problem"
    return [code(field.name), values or kind, default]
