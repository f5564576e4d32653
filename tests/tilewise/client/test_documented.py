import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
EXAMPLE = re.compile(r"^```python\n(from tilewise import .*?)^```", re.MULTILINE | re.DOTALL)


def examples(name: str) -> list[str]:
    return EXAMPLE.findall((ROOT / name).read_text())


@pytest.mark.full
@pytest.mark.parametrize("name", ["README.md", "docs/service.md"])
def test_an_example_does_what_it_says(
    name: str, served: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = examples(name)
    assert found, f"{name} has no example any more"
    for text in found:
        assert "http://localhost:8000" in text
        exec(compile(text.replace("http://localhost:8000", served), name, "exec"), {})
        printed = capsys.readouterr().out
        assert re.search(r"^\d+\.\d+ ", printed, re.MULTILINE), "a speed"
        assert "\nmodule" in printed, "a script"
