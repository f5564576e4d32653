"""The website: its links, its reference, its pages, and examples in Python."""

import ast
import importlib
import json
import re
import subprocess
import sys
import textwrap
from dataclasses import fields
from pathlib import Path, PurePosixPath

import pytest

from docs.website.build import build
from docs.website.links import MARKDOWN, links, rewritten
from docs.website.places import place
from docs.website.reference import GENERATED, environment
from docs.website.stage import project_pages
from tests.docs.commands import ROOT, pages
from tilewise.cli.parser import MODULES
from tilewise.kernels.problem import Conv2d, Matmul
from tilewise.kernels.steps import STEPS

PAGE = PurePosixPath("docs/design/search.md")


@pytest.mark.parametrize(("written", "there"), [
    ("../search.md", "../searches.md"), ("../service.md#answers", "../service.md#answers"),
    ("../../README.md#problems", "../overview.md#problems"),
    ("../../CONTRIBUTING.md", "../contributing.md"), ("../README.md", "../index.md"),
    ("../experiments", "../experiments/README.md"),
    ("../../kernels/steps", "../reference/steps.md"),
    ("../../examples/own_study.py", "../source/examples/own_study.py.md"),
    ("../../examples/ci", "../source/examples/ci.md"), ("../roofline.svg", "../roofline.svg"),
    ("https://doi.org/10.1145/3629527.3651429", "https://doi.org/10.1145/3629527.3651429"),
    ("nothing.md", "nothing.md"),
])  # fmt: skip
def test_a_link_leads_to_the_same_on_the_site_but_in_code(written: str, there: str) -> None:
    text = f"# A page\n\nSee [`this`]({written}).\n"
    assert rewritten(text, PAGE) == text.replace(written, there)
    code = f"# A page\n\n    $ echo [a]({written})\n"
    assert rewritten(code, PAGE) == code


def test_links_of_pages_lead_to_what_exists() -> None:
    """A code host shows a broken link as any other; pages that the site generates are not there."""
    count = 0
    for page in project_pages():
        text = (ROOT / page).read_text()
        known = {link.written for link in links(text, page)}
        for token in MARKDOWN.parse(text):
            for child in token.children or []:
                target = str(child.attrs.get("href", ""))
                is_path = target and ":" not in target and not target.startswith("#")
                assert not is_path or target in known, f"{page}: {target}"
                count += bool(is_path)
    assert count > 100


@pytest.mark.filterwarnings("ignore:.*MystReferenceResolver.app")
@pytest.mark.parametrize(
    "broken", ["[a](nothing.md)", "[a](service.md#nothing)", "![a](nothing.png)"]
)
def test_a_broken_link_fails_the_build(broken: str, tmp_path, monkeypatch, capsys) -> None:
    def stage(folder) -> None:
        folder.mkdir()
        (folder / "index.md").write_text(f"# A\n\n{broken}\n\n```{{toctree}}\nservice\n```\n")
        (folder / "service.md").write_text("# B\n")

    monkeypatch.setattr("docs.website.build.stage", stage)
    assert build(tmp_path / "site") != 0
    assert "nothing" in capsys.readouterr().err


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


def test_every_step_and_every_key_is_there() -> None:
    steps, problems = page("steps"), page("problems")
    for step in STEPS.values():
        assert f"\n## {step.name}\n" in steps
    for operation in (Matmul, Conv2d):
        part = problems.partition(f"\n## {operation.op}\n")[2].partition("\n## ")[0]
        for key in fields(operation):
            assert f"| `{key.name}` |" in part


def test_every_variable_that_the_code_reads_is_there() -> None:
    packages = ("kernels", "search", "service", "tilewise")
    texts = [file.read_text() for one in packages for file in (ROOT / one).rglob("*.py")]
    named = {name for text in texts for name in re.findall(r"TILEWISE_[A-Z_]*[A-Z]", text)}
    text = environment.page()
    assert len(named) > 6
    assert not [name for name in named if f"`{name}`" not in text]


def test_a_page_that_users_read_names_the_same_variables() -> None:
    shown = re.findall(r"^\| `(TILEWISE_\w+)`", environment.page(), re.MULTILINE)
    text = (ROOT / "docs" / "service.md").read_text()
    assert not [name for name in shown if name not in text]


def blocks(page: str) -> list[str]:
    tokens = MARKDOWN.parse((ROOT / page).read_text())
    return [one.content for one in tokens if one.type == "fence" and one.info.strip() == "python"]


EXAMPLES = [(page, text) for page in pages() for text in blocks(page)]


@pytest.mark.parametrize(("page", "text"), EXAMPLES, ids=[page for page, _ in EXAMPLES])
def test_an_example_compiles_and_imports_what_exists(page: str, text: str) -> None:
    tree = ast.parse(textwrap.dedent(text), page)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tilewise"):
            module = importlib.import_module(node.module)
            for name in node.names:
                assert hasattr(module, name.name), f"{page}: {node.module} has no {name.name}"


@pytest.mark.parametrize("page", ["docs/new-step.md", "docs/new-instruction.md"])
def test_a_page_on_an_extension_quotes_files_that_tests_run(page: str) -> None:
    sources = [path.read_text() for path in (ROOT / "tests/extension").glob("*.py")]
    for text in blocks(page):
        assert any(text in source for source in sources), f"{page}:\n{text}"


@pytest.mark.full
def test_the_example_of_an_air_script_proves_it() -> None:
    (text,) = blocks("docs/air.md")
    small = "matmul:m=128,n=128,k=512,dtype=i32"
    given = "matmul:m=1024,n=512,k=2048,dtype=i32"
    assert given in text and "assert prove_air" in text
    exec(compile(text.replace(given, small), "docs/air.md", "exec"), {})


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "docs.website", "-o", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def heading(text: str) -> str:
    return re.search(r"^# (.*)$", text, re.MULTILINE)[1]


@pytest.mark.full
def test_every_page_has_its_place_and_its_heading(site: Path) -> None:
    pages = {place(page): heading((ROOT / page).read_text()) for page in project_pages()}
    pages |= {PurePosixPath(name): page.title for name, page in GENERATED.items()}
    assert len(pages) > 45
    for name, title in pages.items():
        text = (site / name.with_suffix(".html")).read_text()
        shown = re.sub(r"<[^>]*>|#|¶", "", re.search(r"<h1>(.*?)</h1>", text)[1])
        assert shown == title.replace("`", ""), name
