"""A few seconds of `make soak`."""

from pathlib import Path

import pytest

from benchmarks.serving import soak
from benchmarks.serving.fetching import store_of
from benchmarks.serving.service_process import ServiceProcess
from tests.short_timings import python_path

ROOT = Path(__file__).parents[2]


@pytest.mark.full
def test_a_mixed_load_meets_no_error(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("PYTHONPATH", python_path(ROOT))  # clients wait for searches
    monkeypatch.setattr(soak, "FLAT", 2.0)  # a service that has just begun still loads code
    monkeypatch.setattr(soak, "SCRIPTS", 12)  # so that few requests ask for one again
    url = f"sqlite:///{tmp_path / 'store.db'}"
    store_of(url, soak.SCRIPTS)
    with ServiceProcess(url, workers=1, toolchain="") as service:
        for seconds in (3.0, 10.0, 40.0):  # a busy machine sees all kinds later
            seen, memory = soak.soak(service.url, service.process.pid, seconds, 4)
            service.require_alive()
            assert soak.report(seen, memory), capsys.readouterr().out
            assert all(status < 500 for _, status in seen.answers)
            if is_mixed(seen):
                return
    pytest.fail(f"not of every kind: {dict(seen.answers)}")


def is_mixed(seen: soak.Seen) -> bool:
    """Whether requests of every kind were answered, and a script also by that it is unchanged."""
    kinds = {"script", "look-up", "list", "job"} <= set(seen.ms)
    return kinds and bool(seen.answers["script", 200] and seen.answers["script", 304])
