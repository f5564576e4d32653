"""The keys of problem strings, from the operations and the element types."""

import inspect
import json
from dataclasses import MISSING, Field, fields

from docs.website.reference.markdown import code, one_line, table
from tilewise.kernels.problem.base import LARGEST_DIM, Problem
from tilewise.kernels.problem.keys import DTYPES
from tilewise.kernels.problem.parse import OPERATIONS, parse_problem

EXAMPLE = "matmul:k=768,n=3072,m=128,dtype=f32,epilogue=relu,bias,init=zero"
INTRODUCTION = """\
A problem is a string, `OPERATION:KEY=VALUE,...`; a flag stands alone. The keys may come in any
order. The canonical string has them in the order below and leaves out defaults. The same keys make
a JSON object, with the operation as `op`. The key of a problem is the SHA-256 of its canonical
string.
"""


def page() -> str:
    """One heading for each operation, and one for element types."""
    example = parse_problem(EXAMPLE)
    forms = {
        "as typed": EXAMPLE,
        "canonical": example.canonical,
        "JSON": json.dumps(example.to_json()),
        "key": example.key,
    }
    shown = table(["form", "of one problem"], [[name, code(text)] for name, text in forms.items()])
    return "\n".join([INTRODUCTION, shown, *map(_operation, OPERATIONS.values()), _element_types()])


def _operation(operation: type[Problem]) -> str:
    first, _, rest = inspect.cleandoc(operation.__doc__ or "").partition("\n\n")
    rows = [_key(operation, field) for field in fields(operation)]
    keys = table(["key", "values", "default"], rows)
    return f"## {operation.op}\n\n{one_line(first)}\n\n{rest}\n\n{keys}"


def _key(operation: type[Problem], field: Field[object]) -> list[str]:
    default = "needed" if field.default is MISSING else code(field.default)
    default_text = "absent" if field.default is False else default
    return [code(field.name), _values(operation, field), default_text]


def _values(operation: type[Problem], field: Field[object]) -> str:
    if field.name in operation.choices:
        return ", ".join(map(code, operation.choices[field.name]))
    if field.type is bool:
        return "a flag"
    return f"{0 if field.name == 'pad' else 1} to {LARGEST_DIM}"


def _element_types() -> str:
    rows = [
        [
            code(one.name),
            str(one.bytes),
            code(one.accumulator),
            "rounds" if one.is_float else "wraps",
        ]
        for one in DTYPES.values()
    ]
    return "## Element types\n\n" + table(
        ["`dtype`", "bytes of an input", "sums and results", "arithmetic"], rows
    )
