"""Problem strings and JSON objects to problems."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from typing import Any, cast

from tilewise.kernels.errors import ProblemError
from tilewise.kernels.problem.base import Accuracy, Problem
from tilewise.kernels.problem.convolution import Conv2d, Conv3d
from tilewise.kernels.problem.model import Matmul
from tilewise.kernels.quoting import quoted, suggestion

OPERATIONS: dict[str, type[Problem]] = {cls.op: cls for cls in (Matmul, Conv2d, Conv3d)}
COMPOSED = {
    "attention": "tune its products, matmul:batch=HEADS,m=Q,n=K,k=D,transpose_b and "
    "matmul:batch=HEADS,m=Q,n=D,k=K"
}
"""Operations that are tuned as several problems, and which."""
LONGEST_STRING = 1000
LONGEST_FIELD = 40


def parse_problem(source: str | Mapping[str, object]) -> Problem:
    """Read a problem string (`matmul:m=4,n=4,k=4,dtype=f32`) or its JSON object, also as text.

    Raise ProblemError with a short, printable message and field for an unknown operation or key, a
    missing or repeated key, or a bad value.
    """
    return _build(*read_problem(source))


def read_problem(source: str | Mapping[str, object]) -> tuple[type[Problem], dict[str, object]]:
    """Return the operation and the values of keys as they are written; raise as `parse_problem`."""
    if isinstance(source, str):
        if len(source) > LONGEST_STRING:
            raise ProblemError(f"a problem string has at most {LONGEST_STRING} characters")
        if not source.lstrip().startswith("{"):
            return _split(source)
        source = _json_object(source)
    return _from_mapping(source)


def with_accuracy(problem: str, accuracy: Accuracy) -> str:
    """Return the canonical string of a problem with another accuracy."""
    return parse_problem({**parse_problem(problem).to_json(), "accuracy": accuracy}).canonical


def _json_object(text: str) -> Mapping[str, object]:
    try:
        found = json.loads(text, object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        raise ProblemError(f"the problem is not JSON: {error}") from error
    assert isinstance(found, dict)  # it begins with a brace
    return found


def _without_repeats(pairs: Iterable[tuple[str, object]]) -> dict[str, object]:
    """Return the object of `pairs`; JSON itself would keep the last of equal keys."""
    found: dict[str, object] = {}
    for name, value in pairs:
        if name in found:
            raise ProblemError(f"{quoted(name)} is given twice", _field(name))
        found[name] = value
    return found


def _split(text: str) -> tuple[type[Problem], dict[str, object]]:
    op, colon, rest = text.strip().partition(":")
    if not colon:
        raise ProblemError(
            f"{quoted(text)} is not a problem; write one as matmul:m=64,n=64,k=64,dtype=f32"
        )
    operation = _operation(op.strip())
    values: dict[str, object] = {}
    for item in rest.split(","):
        name, equals, value = (part.strip() for part in item.partition("="))
        if not name or (equals and not value):
            raise ProblemError(
                f"{operation.op}: {quoted(item)} is neither key=value nor a flag", _field(name)
            )
        if name in values:
            raise ProblemError(f"{operation.op}: {quoted(name)} is given twice", _field(name))
        values[name] = _word(value) if equals else True
    return operation, values


def _word(value: str) -> object:
    if value in ("true", "false"):
        return value == "true"
    digits = value.removeprefix("-")
    return int(value) if digits.isascii() and digits.isdigit() else value


def _from_mapping(source: Mapping[str, object]) -> tuple[type[Problem], dict[str, object]]:
    values = dict(source)
    op = values.pop("op", None)
    if not isinstance(op, str):
        raise ProblemError("a problem object needs op, such as matmul", "op")
    return _operation(op), values


def _operation(op: str) -> type[Problem]:
    operation = OPERATIONS.get(op)
    if operation is None and op in COMPOSED:
        raise ProblemError(f"{op} is several problems, not one: {COMPOSED[op]}", "op")
    if operation is None:
        known = ", ".join(OPERATIONS)
        near = suggestion(op, OPERATIONS)
        raise ProblemError(f"unknown operation {quoted(op)}{near}; known are {known}", "op")
    return operation


def _build(operation: type[Problem], values: dict[str, object]) -> Problem:
    known = {f.name: f for f in fields(operation)}
    for name in values:
        if name not in known:
            keys = ", ".join(known)
            raise ProblemError(
                f"{operation.op}: unknown key {quoted(name)}{suggestion(name, known)}; "
                f"its keys are {keys}",
                _field(name),
            )
    for name, field in known.items():
        if field.default is MISSING and name not in values:
            raise ProblemError(f"{operation.op}: {name} is missing", name)
    for name, value in values.items():
        if value is True and known[name].type is not bool:
            raise ProblemError(f"{operation.op}: {name} needs a value, as {name}=...", name)
    return operation(**cast("dict[str, Any]", values))


def _field(name: str) -> str:
    """Return the field that an error names: the key as written, if printable."""
    return name if name.isprintable() and 0 < len(name) <= LONGEST_FIELD else "problem"
