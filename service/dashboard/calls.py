"""The calls of the HTTP API, as its OpenAPI document has them, for people to read."""

from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class Parameter:
    """What a call takes: its name, where it stands, and what it may be."""

    name: str
    place: str
    told: str


@dataclass(frozen=True)
class Call:
    """One call.

    Attributes:
        first, rest: what it does: the first line, and the paragraphs after it.
        body: name of the schema that it takes; empty where it takes none.
        answers: what each status means.
    """

    method: str
    path: str
    first: str
    rest: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    body: str
    answers: dict[str, str]


def calls_of(document: Json) -> dict[str, list[Call]]:
    """The calls of an OpenAPI document, by their tag, in its order."""
    found: dict[str, list[Call]] = {}
    for path, methods in document["paths"].items():
        for method, call in methods.items():
            for tag in call.get("tags", ["others"]):
                found.setdefault(tag, []).append(_call(method.upper(), path, call))
    return found


def _call(method: str, path: str, call: Json) -> Call:
    told = str(call.get("description") or call.get("summary") or "")
    first, *rest = told.split("\n\n")
    content = call.get("requestBody", {}).get("content", {}).values()
    schemas = [one.get("schema", {}).get("$ref", "") for one in content]
    return Call(
        method=method,
        path=path,
        first=" ".join(first.split()),
        rest=tuple(" ".join(line.split()) for line in rest),
        parameters=tuple(_parameter(one) for one in call.get("parameters", ())),
        body=schemas[0].rpartition("/")[2] if schemas else "",
        answers={status: one["description"] for status, one in call["responses"].items()},
    )


def _parameter(given: Json) -> Parameter:
    told = _told(given.get("schema", {}))
    if given.get("required"):
        told += ", required"
    return Parameter(given["name"], given["in"], told)


def _told(schema: Json) -> str:
    """What a value may be, in a few words."""
    if "anyOf" in schema:
        kinds = [_told(one) for one in schema["anyOf"] if one.get("type") != "null"]
        return " or ".join(kinds)
    if "enum" in schema:
        return "one of " + ", ".join(map(str, schema["enum"]))
    words = [str(schema.get("type", "any"))]
    bounds = (("minimum", "at least"), ("maximum", "at most"), ("maxLength", "no longer than"))
    words += [f"{said} {schema[name]}" for name, said in bounds if name in schema]
    if "default" in schema and schema["default"] is not None:
        words.append(f"by itself {schema['default']}")
    return ", ".join(words)
