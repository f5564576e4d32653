from pathlib import PurePosixPath

import pytest

from docs.website.build import build
from docs.website.links import MARKDOWN, links, rewritten
from docs.website.stage import project_pages
from tests.docs.commands import ROOT

PAGE = PurePosixPath("docs/design/search.md")


@pytest.mark.parametrize(
    ("written", "there"),
    [
        ("../search.md", "../searches.md"),
        ("../service.md#answers", "../service.md#answers"),
        ("../../README.md#problems", "../overview.md#problems"),
        ("../../CONTRIBUTING.md", "../contributing.md"),
        ("../README.md", "../index.md"),
        ("../experiments", "../experiments/README.md"),
        ("../../kernels/steps", "../reference/steps.md"),
        ("../../examples/own_study.py", "../source/examples/own_study.py.md"),
        ("../../examples/ci", "../source/examples/ci.md"),
        ("../roofline.svg", "../roofline.svg"),
        ("https://doi.org/10.1145/3629527.3651429", "https://doi.org/10.1145/3629527.3651429"),
        ("nothing.md", "nothing.md"),
    ],
)
def test_a_link_leads_to_the_same_on_the_site(written: str, there: str) -> None:
    text = f"# A page\n\nSee [`this`]({written}).\n"
    assert rewritten(text, PAGE) == text.replace(written, there)


def test_code_keeps_what_looks_like_a_link() -> None:
    text = "# A page\n\n    $ echo [a](../search.md)\n"
    assert rewritten(text, PAGE) == text


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
def test_a_broken_link_fails_the_build(
    broken: str, tmp_path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stage(folder) -> None:
        folder.mkdir()
        (folder / "index.md").write_text(f"# A\n\n{broken}\n\n```{{toctree}}\nservice\n```\n")
        (folder / "service.md").write_text("# B\n")

    monkeypatch.setattr("docs.website.build.stage", stage)
    assert build(tmp_path / "site") != 0
    assert "nothing" in capsys.readouterr().err
