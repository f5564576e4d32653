import psutil
from distributed import Client

from tests.service.processes import wait_until
from tilewise.service.cluster.task import make_plan


def test_a_plan_that_is_cancelled_is_not_made_any_further(tmp_path):
    told = tmp_path / "pid.txt"
    with Client(
        processes=False, n_workers=1, threads_per_worker=1, dashboard_address=None
    ) as client:
        task = client.submit(
            make_plan, str(told), b"module {}", "tests.service.cluster.sleeping", pure=False
        )
        wait_until(lambda: told.exists() and told.read_text())
        child = int(told.read_text())
        assert psutil.pid_exists(child)
        task.cancel()
        wait_until(lambda: not psutil.pid_exists(child))
