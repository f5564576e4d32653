"""Every route with its parameters, bodies and answers, from docs/openapi.json.

A test of the service holds that document to the application.
"""

import json

from docs.website.places import ROOT
from docs.website.reference.json_types import (
    Schema,
    about,
    anchor,
    list_of,
    object_of,
    properties,
    type_words,
)
from docs.website.reference.markdown import code, one_line, table

DOCUMENT = ROOT / "docs" / "openapi.json"
PROBLEM = "application/problem+json"
INTRODUCTION = """\
The document of OpenAPI is [openapi.json](../openapi.json), and a service has its own at
`/openapi.json`. [The service](../service.md) says what the calls are for, and
[what to do](../service.md#answers) about each status. [Security](../security.md) says who may ask
for what: a token goes into the header `Authorization: Bearer TOKEN`.
"""


def page() -> str:
    """One heading for each resource, one below it for each call, then all objects."""
    document = object_of(json.loads(DOCUMENT.read_text()))
    calls = [
        (method.upper(), path, object_of(call))
        for path, methods in object_of(document["paths"]).items()
        for method, call in object_of(methods).items()
    ]
    tags = dict.fromkeys(str(tag) for *_, call in calls for tag in list_of(call.get("tags")))
    parts = [INTRODUCTION]
    for tag in tags:
        parts.append(f"## {tag.capitalize()}\n")
        parts += [_call(*one) for one in calls if tag in list_of(one[2].get("tags"))]
    schemas = object_of(object_of(document["components"])["schemas"])
    parts += ["## Objects\n", *(_object(name, object_of(one)) for name, one in schemas.items())]
    return "\n".join(parts)


def _call(method: str, path: str, call: Schema) -> str:
    parameters = [object_of(one) for one in list_of(call.get("parameters"))]
    rows = [_parameter(one) for one in parameters]
    body = object_of(object_of(call.get("requestBody")).get("content"))
    return "\n".join([
        f"### {method} {path}\n",
        f"{call.get('description', '')}\n",
        table(["parameter", "in", "type", "about"], rows),
        *(f"Body, `{kind}`: {_content(object_of(one))}\n" for kind, one in body.items()),
        _answers(object_of(call["responses"])),
    ])  # fmt: skip


def _parameter(parameter: Schema) -> list[str]:
    schema = object_of(parameter.get("schema"))
    text = about(
        {"description": parameter.get("description", ""), "default": schema.get("default")}
    )
    needed = "needed" if parameter.get("required") else ""
    return [
        code(parameter["name"]), str(parameter["in"]), type_words(schema),
        "; ".join(part for part in (needed, text) if part),
    ]  # fmt: skip


def _answers(responses: Schema) -> str:
    rows, errors = [], []
    for status, one in responses.items():
        response = object_of(one)
        content = object_of(response.get("content"))
        if PROBLEM in content:
            errors.append(status)
            continue
        headers = ", ".join(map(code, object_of(response.get("headers"))))
        kinds = [f"{code(kind)} {_content(object_of(body))}" for kind, body in content.items()]
        rows.append([status, one_line(str(response["description"])), ", ".join(kinds), headers])
    refused = f"Errors: {', '.join(errors)}, each [ProblemDetails](#{anchor('ProblemDetails')}).\n"
    shown = table(["status", "when", "body", "headers"], rows)
    return shown + ("\n" + refused if errors else "")


def _content(media: Schema) -> str:
    schema = object_of(media.get("schema"))
    return type_words(schema) if schema and schema.get("type") != "string" else ""


def _object(name: str, schema: Schema) -> str:
    text = schema.get("description", "")
    return f"({anchor(name)})=\n### {name}\n\n{text}\n\n{properties(schema)}"
