import ast
import importlib
import textwrap

import pytest

from docs.website.links import MARKDOWN
from tests.docs.commands import ROOT, pages


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
