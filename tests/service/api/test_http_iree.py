import json

import pytest

from tests.service.conftest import PROBLEM
from tilewise.kernels.problem import parse_problem
from tilewise.service.results import kernels

KEY = parse_problem(PROBLEM).key
PATH = f"/v1/schedules/{KEY}/script?flavor=iree"


@pytest.fixture(autouse=True)
def nothing_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path))


def answers(monkeypatch: pytest.MonkeyPatch, **document: str | None) -> list[str]:
    asked: list[str] = []

    def made(source: str) -> str:
        asked.append(source)
        return json.dumps(document)

    monkeypatch.setitem(kernels.MAKERS, "iree", made)
    return asked


def test_it_is_made_once_and_named_by_a_tag(client, client_factory, tuned, monkeypatch):
    asked = answers(monkeypatch, script="module {}", reason="")
    first = client.get(PATH)
    assert (first.status_code, first.text) == (200, "module {}")
    assert first.headers["Content-Type"].startswith("text/x-mlir")
    again = client_factory().get(PATH, headers={"If-None-Match": first.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert len(asked) == 1
    assert json.loads(asked[0])["problem"] == PROBLEM


def test_where_iree_is_as_fast_without_there_is_none_and_the_times_are_told(
    client, tuned, monkeypatch
):
    asked = answers(monkeypatch, script=None, reason="IREE alone is faster: 3.0 us")
    for _ in range(2):
        answer = client.get(PATH)
        assert answer.status_code == 404
        assert "IREE alone is faster: 3.0 us" in answer.json()["detail"]
    assert len(asked) == 1
