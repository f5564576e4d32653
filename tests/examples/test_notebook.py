from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.service.processes import ServiceProcess
from tilewise.plots import VEGA_LITE_MIME

NOTEBOOK = Path(__file__).parents[2] / "examples" / "search.ipynb"


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    service = ServiceProcess(f"sqlite:///{tmp_path / 'results.db'}", "tests.service.fakes:tune")
    yield f"http://127.0.0.1:{service.port}"
    service.stop()


@pytest.mark.full
def test_the_notebook_runs_and_shows_its_plots(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWISE_SERVER", address)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(notebook, timeout=120).execute(cwd=str(tmp_path))
    shown = {last_line(cell): cell.outputs for cell in notebook.cells if cell.cell_type == "code"}
    (card,) = shown["result"]
    assert "GFLOP/s" in card.data["text/html"] and "<svg" in card.data["text/html"]
    drawn = [line for line in shown if line.startswith("plots.")]
    assert len(drawn) == 3
    for line in drawn:
        assert len(shown[line]) == 1, shown[line]
        (output,) = shown[line]
        assert output.data["image/svg+xml"].startswith("<svg"), line
        assert (VEGA_LITE_MIME in output.data) is ("loop_nest" not in line)
    (script,) = shown["client.close()"]
    assert "module" in script.text


def last_line(cell: Any) -> str:
    return str(cell.source.splitlines()[-1])


def test_the_notebook_is_kept_without_outputs() -> None:
    for cell in nbformat.read(NOTEBOOK, as_version=4).cells:
        assert not cell.get("outputs") and not cell.get("execution_count")
