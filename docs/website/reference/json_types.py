"""JSON schemas of an OpenAPI document as words."""

import json
from collections.abc import Mapping, Sequence

from docs.website.reference.markdown import code, one_line, table

Json = str | int | float | bool | None | Sequence["Json"] | Mapping[str, "Json"]
Schema = Mapping[str, Json]
LIMITS = {
    "minimum": "at least {}", "maximum": "at most {}", "exclusiveMinimum": "above {}",
    "minLength": "at least {} characters", "maxLength": "at most {} characters",
    "minItems": "at least {} items", "maxItems": "at most {} items", "pattern": "matches {}",
}  # fmt: skip
PLAIN = {"integer": "integer", "number": "number", "string": "string", "boolean": "boolean",
         "null": "null", "object": "object", "array": "list"}  # fmt: skip


def object_of(value: Json) -> Schema:
    """A value that has to be an object; anything else is an empty one."""
    return value if isinstance(value, Mapping) else {}


def list_of(value: Json) -> Sequence[Json]:
    """A value that has to be a list; anything else is an empty one."""
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()


def anchor(name: str) -> str:
    """The anchor of a schema's heading."""
    return f"schema-{name.lower()}"


def type_words(schema: Schema) -> str:
    """Such as `string or null`, `list of [TrialView](#schema-trialview)`, "`read`, `admin`"."""
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        return f"[{name}](#{anchor(name)})"
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return " or ".join(type_words(object_of(one)) for one in list_of(schema[several]))
    if "enum" in schema:
        return ", ".join(map(code, list_of(schema["enum"])))
    if "const" in schema:
        return code(schema["const"])
    return _plain(schema)


def _plain(schema: Schema) -> str:
    kind = PLAIN.get(str(schema.get("type")), "anything")
    if kind == "list" and "items" in schema:
        kind = f"list of {type_words(object_of(schema['items']))}"
    values = object_of(schema.get("additionalProperties"))
    if kind == "object" and values:
        kind = f"object of {type_words(values)}"
    if "format" in schema:
        kind = f"{kind} ({schema['format']})"
    limits = [words.format(code(schema[key])) for key, words in LIMITS.items() if key in schema]
    return ", ".join([kind, *limits])


def about(schema: Schema) -> str:
    """The description in one line, with the default where there is one that is no null."""
    facts = [one_line(str(schema.get("description", "")))]
    if schema.get("default") is not None:
        facts.append(f"default: {code(json.dumps(schema['default']))}")
    return "; ".join(part for part in facts if part)


def properties(schema: Schema) -> str:
    """A table of an object's fields; those that are always there are marked."""
    needed = list_of(schema.get("required"))
    rows = [
        [code(name), type_words(object_of(field)), "yes" if name in needed else "",
         about(object_of(field))]
        for name, field in object_of(schema.get("properties")).items()
    ]  # fmt: skip
    return table(["field", "type", "required", "about"], rows)
