"""A few seconds of `make soak`."""

from pathlib import Path

import pytest

from benchmarks.serving import soak
from benchmarks.serving.fetching import store_of
from benchmarks.serving.service_process import ServiceProcess


def test_a_mixed_load_meets_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(soak, "FLAT", 2.0)  # a service that has just begun still loads code
    url = f"sqlite:///{tmp_path / 'store.db'}"
    store_of(url, soak.SCRIPTS)
    with ServiceProcess(url, workers=1, toolchain="") as service:
        seen, memory = soak.soak(service.url, service.process.pid, 5.0, 4)
        service.require_alive()
    assert soak.report(seen, memory), capsys.readouterr().out
    assert {"script", "look-up", "list", "job"} <= set(seen.ms)
    assert seen.answers["script", 200] and seen.answers["script", 304]
    assert all(status < 500 for _, status in seen.answers)
