"""Problem strings and JSON objects into `Problem`, with errors that name the key."""

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, cast

from kernels.errors import ProblemError
from kernels.problem.model import Conv2d, Matmul, Problem

OPERATIONS: dict[str, type[Problem]] = {cls.op: cls for cls in (Matmul, Conv2d)}
LONGEST_STRING = 1000


def parse_problem(source: str | Mapping[str, object]) -> Problem:
    """Read a problem string (`matmul:m=4,n=4,k=4,dtype=f32`) or its JSON object, also as text.

    Raises:
        ProblemError: unknown operation or key, missing or repeated key, bad value.
    """
    if isinstance(source, str) and source.lstrip().startswith("{"):
        source = _json_object(source)
    if isinstance(source, str):
        op, values = _split(source)
    else:
        op, values = _from_mapping(source)
    operation = OPERATIONS.get(op)
    if operation is None:
        known = ", ".join(OPERATIONS)
        raise ProblemError(f"unknown operation {op!r}; known are {known}", "op")
    return _build(operation, values)


def _json_object(text: str) -> Mapping[str, object]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ProblemError(f"the problem is not JSON: {error}") from error
    assert isinstance(found, dict)  # it begins with a brace
    return found


def _split(text: str) -> tuple[str, dict[str, object]]:
    if len(text) > LONGEST_STRING:
        raise ProblemError(f"a problem string has at most {LONGEST_STRING} characters")
    op, colon, rest = text.strip().partition(":")
    if not colon:
        raise ProblemError(
            f"{text!r} is not a problem; write one as matmul:m=64,n=64,k=64,dtype=f32"
        )
    values: dict[str, object] = {}
    for item in rest.split(","):
        name, equals, value = (part.strip() for part in item.partition("="))
        if not name or (equals and not value):
            raise ProblemError(f"{op}: {item!r} is neither key=value nor a flag", name or "problem")
        if name in values:
            raise ProblemError(f"{op}: {name} is given twice", name)
        values[name] = _word(value) if equals else True
    return op.strip(), values


def _word(value: str) -> object:
    if value in ("true", "false"):
        return value == "true"
    digits = value.removeprefix("-")
    return int(value) if digits.isascii() and digits.isdigit() else value


def _from_mapping(source: Mapping[str, object]) -> tuple[str, dict[str, object]]:
    values = dict(source)
    op = values.pop("op", None)
    if not isinstance(op, str):
        raise ProblemError("a problem object needs op, such as matmul", "op")
    return op, values


def _build(operation: type[Problem], values: dict[str, object]) -> Problem:
    known = {f.name: f for f in fields(operation)}
    for name in values:
        if name not in known:
            keys = ", ".join(known)
            raise ProblemError(f"{operation.op}: unknown key {name!r}; its keys are {keys}", name)
    for name, field in known.items():
        if field.default is MISSING and name not in values:
            raise ProblemError(f"{operation.op}: {name} is missing", name)
    for name, value in values.items():
        if value is True and known[name].type is not bool:
            raise ProblemError(f"{operation.op}: {name} needs a value, as {name}=...", name)
    return operation(**cast("dict[str, Any]", values))
