"""Frozen dataclasses as JSON objects and back, for messages between processes of this code."""

import functools
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import datetime
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Value = TypeVar("Value")


def to_json(value: "DataclassInstance") -> dict[str, Any]:
    """Return a dataclass as an object, with its parts; lists of numbers are not copied."""
    return {field.name: _written(getattr(value, field.name)) for field in fields(value)}


def _written(part: Any) -> Any:
    if is_dataclass(part) and not isinstance(part, type):
        return to_json(part)
    if isinstance(part, tuple) and part and is_dataclass(part[0]):
        return [_written(one) for one in part]
    if isinstance(part, dict):
        return {name: _written(one) for name, one in part.items()}
    return part


def from_json(kind: type[Value], source: object, *, tolerant: bool = False) -> Value:
    """Return the dataclass that `to_json` made an object of.

    `kind` may consist of numbers, strings, booleans, datetimes, literals, homogeneous tuples,
    dictionaries by string, dataclasses, Any, optional ones of these, and unions with a tuple. With
    `tolerant` unknown fields are ignored and missing ones take their defaults, for other versions
    of the dataclass.

    Raises:
        ValueError: the source has another shape; the message names the field.
    """
    made: Value = _read(kind, source, kind.__name__, tolerant)
    return made


def _read(kind: Any, source: object, where: str, tolerant: bool) -> Any:
    if kind is Any:
        return source
    if is_dataclass(kind):
        return _record(kind, source, where, tolerant)
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        if source is None and NoneType in parts:
            return None
        is_list = isinstance(source, list)
        given = [part for part in parts if part is not NoneType]
        one = next((part for part in given if (get_origin(part) is tuple) == is_list), given[0])
        return _read(one, source, where, tolerant)
    if origin is tuple:
        listed = _required(list, source, where)
        if parts[0] is float and all(type(part) is float for part in listed):
            return tuple(listed)  # thousands of samples, as a rule
        return tuple(
            _read(parts[0], part, f"{where}[{i}]", tolerant) for i, part in enumerate(listed)
        )
    if origin is dict:
        named = _required(dict, source, where)
        return {
            name: _read(parts[1], part, f"{where}.{name}", tolerant) for name, part in named.items()
        }
    if origin is Literal:
        if source not in parts:
            raise ValueError(f"{where} is {source!r}, not one of {', '.join(map(str, parts))}")
        return source
    return _PLAIN[kind](kind, source, where)


def _record(kind: Any, source: object, where: str, tolerant: bool) -> Any:
    given, hints = _required(dict, source, where), _hints(kind)
    if tolerant:
        needed = {field.name for field in fields(kind) if not _has_default(field)}
        if lacking := sorted(needed - given.keys()):
            raise ValueError(f"{where} has no {', '.join(lacking)}")
        hints = {name: hint for name, hint in hints.items() if name in given}
    elif given.keys() != hints.keys():
        raise ValueError(f"{where} has the fields {sorted(given)}, not {sorted(hints)}")
    parts = {
        name: _read(hint, given[name], f"{where}.{name}", tolerant) for name, hint in hints.items()
    }
    return kind(**parts)


def _has_default(field: "Field[Any]") -> bool:
    return field.default is not MISSING or field.default_factory is not MISSING


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _required(kind: type, source: object, where: str) -> Any:
    if not isinstance(source, kind) or (isinstance(source, bool) and kind is not bool):
        raise ValueError(f"{where} is {source!r:.80}, not of type {kind.__name__}")
    return source


def _number(_kind: type, source: object, where: str) -> float:
    if isinstance(source, int) and not isinstance(source, bool):
        return float(source)
    number: float = _required(float, source, where)
    return number


def _moment(_kind: type, source: object, where: str) -> datetime:
    try:
        return datetime.fromisoformat(_required(str, source, where))
    except ValueError as error:
        raise ValueError(f"{where} is {source!r:.80}, not a moment") from error


_PLAIN: dict[Any, Callable[[type, object, str], Any]] = {
    float: _number,
    int: _required,
    str: _required,
    bool: _required,
    datetime: _moment,
}
