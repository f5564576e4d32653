"""A whole farm of real processes on loopback: service, drivers, scheduler, workers."""

import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import httpx
import psutil

from tests.service.cluster import tuners
from tests.service.processes import FAKE_PROVER, wait_until
from tilewise.kernels.system.children import child_command, child_environment
from tilewise.service.app import create_app
from tilewise.service.listening import listen
from tilewise.service.server import Server
from tilewise.service.settings import Settings

TUNER = "tests.service.cluster.tuners:tune"
HELPER = "tests.service.cluster.tuners:run_worker"
EMBEDDED = "embedded"
STARTUP_S = 120


class Farm:
    """Processes by name: `service`, `scheduler`, `driver` and further drivers, `worker-1`, ..."""

    def __init__(
        self, folder: Path, names: Sequence[str], database=None, *, uses_tls=False, **options: str
    ) -> None:
        self.folder, self.database = folder, database
        self.url = database.url() if database else f"sqlite:///{folder / 'farm.db'}"
        self.trials = folder / "trials.txt"
        self.trials.touch()
        self.ports = {name: free_port() for name in ("service", "scheduler")}
        self.service = f"http://127.0.0.1:{self.ports['service']}"
        protocol = "tls" if uses_tls else "tcp"
        self.scheduler = f"{protocol}://127.0.0.1:{self.ports['scheduler']}"
        self.environment = {
            "TILEWISE_DB": self.url,
            "TILEWISE_SCHEDULER": "" if EMBEDDED in names else self.scheduler,
            "TILEWISE_SERVICE_URL": self.service,
            "TILEWISE_LOG_FORMAT": "text",
            tuners.LOG: str(self.trials),
            **options,
        }
        self.commands = {
            "service": ["tests.service.cluster.farm", str(self.ports["service"])],
            EMBEDDED: ["tests.service.cluster.farm", str(self.ports["service"]), "1"],
            "scheduler": ["tilewise", "scheduler", "--port", str(self.ports["scheduler"])],
            "driver": ["tilewise.service.cluster", f"--tuner={TUNER}", f"--prover={FAKE_PROVER}",
                       f"--helper={HELPER}"],
            "worker": ["tilewise", "worker", "--no-peaks"],
        }  # fmt: skip
        if uses_tls:
            self.commands["scheduler"].append("--tls")
        self.client = httpx.Client(base_url=self.service, timeout=30)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        for name in names:
            self.start(name)

    def start(self, name: str) -> None:
        """Start a process, or start it again."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                child_command(*self.commands[name.partition("-")[0]]),
                env=child_environment(**self.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def send(self, name: str, number: int) -> None:
        """Send a signal to a process; one that kills it is waited for."""
        self.processes[name].send_signal(number)
        if number == signal.SIGKILL:
            self.processes[name].wait()

    def kill_and_start(self, name: str) -> None:
        """kill -9, and a new process in its place."""
        self.send(name, signal.SIGKILL)
        self.start(name)

    def supervise(self) -> None:
        """Start again what has ended by itself."""
        for name, one in list(self.processes.items()):
            if one.poll() is not None:
                self.start(name)

    def runs(self) -> list[psutil.Process]:
        """The processes below workers that run jobs."""
        workers = [one for name, one in self.processes.items() if name.startswith("worker")]
        found = []
        for worker in workers:
            with suppress(psutil.NoSuchProcess):
                found += psutil.Process(worker.pid).children()
        return [run for run in found if "tilewise.service.workers" in " ".join(arguments(run))]

    def wait_for_workers(self, count: int) -> None:
        """Wait until so many workers are shown."""

        def are_shown():
            with suppress(httpx.TransportError):
                return len(self.client.get("/v1/targets").json()["workers"]) == count

        wait_until(are_shown, STARTUP_S)

    def ask(self, problem: str, *, seed: int, trials: int = 4, **options: object) -> int:
        """Ask for a search, again where nobody answers or nobody can; the number of its job."""
        body = {"problem": problem, "seed": seed, "trials": trials, "target": "host", **options}
        headers = {"Idempotency-Key": uuid.uuid4().hex}
        while True:
            with suppress(httpx.TransportError):
                answer = self.client.post("/v1/jobs", json=body, headers=headers)
                if answer.status_code != 503:
                    assert answer.status_code == 202, answer.text
                    return int(answer.json()["id"])
            time.sleep(0.2)

    def job(self, job_id: int) -> dict[str, object]:
        return self.client.get(f"/v1/jobs/{job_id}").json()

    def noted(self) -> list[str]:
        """The lines of the trials that were acknowledged."""
        return self.trials.read_text().splitlines()

    def told(self) -> str:
        """What the processes have logged."""
        logs = sorted(self.folder.glob("*.log"))
        return "\n".join(f"== {path.name}\n{path.read_text()[-4000:]}" for path in logs)

    def close(self) -> None:
        self.client.close()
        for one in self.processes.values():
            one.send_signal(signal.SIGCONT)
            one.kill()
        for one in self.processes.values():
            one.wait()


def arguments(process: psutil.Process) -> list[str]:
    """The command line of a process; none where it is gone."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def is_alive(process: psutil.Process) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def main(port: str, workers: str = "0") -> None:
    """The service, with so many workers of its own."""
    arguments = (f"--tuner={TUNER}", f"--prover={FAKE_PROVER}")
    settings = Settings(stream_seconds=0.5)
    app = create_app(settings, int(workers), worker_arguments=arguments)
    Server(app, log_level="warning").run(sockets=listen("127.0.0.1", int(port)))


if __name__ == "__main__":
    main(*sys.argv[1:])
