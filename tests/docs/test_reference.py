import json
import re
from dataclasses import fields

import pytest

from docs.website.reference import GENERATED, environment
from docs.website.reference.json_types import type_words
from tests.docs.commands import ROOT
from tilewise.cli.parser import MODULES
from tilewise.kernels.problem.model import Conv2d, Matmul
from tilewise.kernels.steps import STEPS


def page(name: str) -> str:
    return GENERATED[f"reference/{name}.md"].text()


def test_every_command_says_what_each_argument_does() -> None:
    text = page("command-line")
    for module in MODULES:
        for command in module.COMMANDS:
            assert f"\n## tilewise {command.name}\n" in text
    rows = re.findall(r"^\| (`.*?`) \| (.*?) \| .*\|$", text, re.MULTILINE)
    assert len(rows) > 60
    assert not [argument for argument, does in rows if not does.strip()]


def test_every_call_and_every_object_of_the_api_is_there() -> None:
    text, document = page("http-api"), json.loads((ROOT / "docs/openapi.json").read_text())
    for path, methods in document["paths"].items():
        for method in methods:
            assert f"\n### {method.upper()} {path}\n" in text
    for name, schema in document["components"]["schemas"].items():
        part = text.partition(f"\n### {name}\n")[2].partition("\n### ")[0]
        for field in schema.get("properties", {}):
            assert f"| `{field}` |" in part, f"{name} lacks {field}"


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "string", "maxLength": 9}, "string, at most `9` characters"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "integer or null"),
        ({"$ref": "#/components/schemas/JobView"}, "[JobView](#schema-jobview)"),
        ({"type": "array", "items": {"enum": ["a", "b"]}}, "list of `a`, `b`"),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "object of number"),
        ({"type": "string", "format": "date-time"}, "string (date-time)"),
        ({"const": "x"}, "`x`"),
        ({}, "anything"),
    ],
)
def test_a_schema_in_words(schema, words) -> None:
    assert type_words(schema) == words


def test_every_step_and_every_key_is_there() -> None:
    steps, problems = page("steps"), page("problems")
    for step in STEPS.values():
        assert f"\n## {step.name}\n" in steps
    for operation in (Matmul, Conv2d):
        part = problems.partition(f"\n## {operation.op}\n")[2].partition("\n## ")[0]
        for key in fields(operation):
            assert f"| `{key.name}` |" in part


def test_every_variable_that_the_code_reads_is_there() -> None:
    rooms = ("kernels", "search", "service", "tilewise")
    texts = [file.read_text() for room in rooms for file in (ROOT / room).rglob("*.py")]
    named = {name for text in texts for name in re.findall(r"TILEWISE_[A-Z_]*[A-Z]", text)}
    text = environment.page()
    assert len(named) > 6
    assert not [name for name in named if f"`{name}`" not in text]


def test_a_page_that_users_read_names_the_same_variables() -> None:
    shown = re.findall(r"^\| `(TILEWISE_\w+)`", environment.page(), re.MULTILINE)
    text = (ROOT / "docs" / "service.md").read_text()
    assert not [name for name in shown if name not in text]
