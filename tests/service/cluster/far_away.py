"""A worker behind a slow and lossy network: what a job costs there, and what it measures.

    python -m tests.service.cluster.far_away --delay-ms 100 --loss 0.01

Two network namespaces, joined by a device whose packets this program carries, late and not all of
them; TCP sees what it would see of such a network. Service, scheduler and driver are in one, the
worker is in the other. The same job runs near first, with the worker beside the service. Needs
root, for namespaces. Ratios are those of trials of the same schedule, far over near.
"""

import argparse
import fcntl
import heapq
import itertools
import os
import random
import select
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from tilewise import Client
from tilewise.client import Result
from tilewise.kernels.system.children import child_command, child_environment

NEAR, FAR = "tilewise-near", "tilewise-far"
ADDRESSES = {NEAR: "10.77.0.1", FAR: "10.77.0.2"}
DEVICES = {NEAR: "tw-near", FAR: "tw-far"}
PROBLEM = "matmul:m=192,n=256,k=320,dtype=f32"
SCHEDULER, SERVICE = 8786, 8000
TUN, SET_IFF, PLAIN_IP = 0x0001, 0x400454CA, 0x1000
LARGEST_PACKET = 65536
STARTUP_S, JOB_S = 120.0, 900.0


class Link:
    """Carries packets between the devices of both namespaces.

    Args:
        delay_s: of each packet, one way.
        loss: share of packets that are thrown away.
    """

    def __init__(self, delay_s: float, loss: float) -> None:
        self._delay_s, self._loss = delay_s, loss
        self._ends = {name: _device(DEVICES[name]) for name in (NEAR, FAR)}
        self._chance = random.Random(0)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._carry, daemon=True)
        self.carried = self.lost = 0

    def start(self) -> None:
        """Begin to carry."""
        self._thread.start()

    def stop(self) -> None:
        """End; the devices go with this."""
        self._stopping.set()
        self._thread.join()
        for end in self._ends.values():
            os.close(end)

    def _carry(self) -> None:
        near, far = self._ends[NEAR], self._ends[FAR]
        other, under_way, number = {near: far, far: near}, [], itertools.count()
        while not self._stopping.is_set():
            wait_s = max(0.0, under_way[0][0] - time.monotonic()) if under_way else 0.1
            ready, _, _ = select.select([near, far], [], [], min(wait_s, 0.1))
            for end in ready:
                packet = os.read(end, LARGEST_PACKET)
                if self._chance.random() < self._loss:
                    self.lost += 1
                    continue
                due = time.monotonic() + self._delay_s
                heapq.heappush(under_way, (due, next(number), other[end], packet))
            while under_way and under_way[0][0] <= time.monotonic():
                _, _, end, packet = heapq.heappop(under_way)
                os.write(end, packet)
                self.carried += 1


def _device(name: str) -> int:
    end = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(end, SET_IFF, struct.pack("16sH", name.encode(), TUN | PLAIN_IP))
    return end


@contextmanager
def namespaces(delay_s: float, loss: float) -> Iterator[Link]:
    """Both namespaces, joined."""
    for name in (NEAR, FAR):
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
        _ip("netns", "add", name)
    link = Link(delay_s, loss)
    try:
        for name, device in DEVICES.items():
            other = ADDRESSES[FAR if name == NEAR else NEAR]
            _ip("link", "set", device, "netns", name)
            _ip("-n", name, "addr", "add", ADDRESSES[name], "peer", other, "dev", device)
            _ip("-n", name, "link", "set", device, "up")
            _ip("-n", name, "link", "set", "lo", "up")
        link.start()
        yield link
    finally:
        link.stop()
        for name in (NEAR, FAR):
            _ip("netns", "del", name)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


@contextmanager
def process(name: str, namespace: str, folder: Path, *arguments: str) -> Iterator[None]:
    """A command of Tilewise in a namespace."""
    environment = {
        "TILEWISE_DB": f"sqlite:///{folder / 'farm.db'}",
        "TILEWISE_CACHE_DIR": str(folder / "cache"),
        "TILEWISE_SCHEDULER": f"tcp://{ADDRESSES[NEAR]}:{SCHEDULER}",
        "TILEWISE_SERVICE_URL": f"http://{ADDRESSES[NEAR]}:{SERVICE}",
    }
    with (folder / f"{name}.log").open("ab") as log:
        child = subprocess.Popen(
            ["ip", "netns", "exec", namespace, *child_command("tilewise", *arguments)],
            env=child_environment(**environment),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        yield
    finally:
        child.terminate()
        child.wait(60)


def searched(namespace: str, trials: int) -> tuple[float, Result, dict[str, float]]:
    """Seconds of a job whose worker is in a namespace, its result, and each schedule's time."""
    with ExitStack() as open_, tempfile.TemporaryDirectory(prefix="tilewise-far-") as name:
        folder, near = Path(name), ADDRESSES[NEAR]
        run = [sys.executable, "-m", "tilewise", "token", "create", "far", "--scope", "submit"]
        database = {**os.environ, "TILEWISE_DB": f"sqlite:///{folder / 'farm.db'}"}
        token = subprocess.run(run, env=database, capture_output=True, text=True, check=True)
        scheduler = ("scheduler", "--host", near, "--port", str(SCHEDULER))
        serve = ("serve", "--host", near, "--port", str(SERVICE))
        worker = ("worker", "--host", ADDRESSES[namespace], "--no-peaks")
        open_.enter_context(process("scheduler", NEAR, folder, *scheduler))
        open_.enter_context(process("service", NEAR, folder, *serve))
        open_.enter_context(process("worker", namespace, folder, *worker))
        told = _in_namespace(_asked, token.stdout.strip(), trials)
        if isinstance(told, str):
            logs = "\n".join(path.read_text()[-2000:] for path in folder.glob("*.log"))
            raise SystemExit(f"{told}\n{logs}")
        return told


def _asked(token: str, trials: int) -> tuple[float, Result, dict[str, float]]:
    """Ask the service, in the namespace where it is."""
    with Client(f"http://{ADDRESSES[NEAR]}:{SERVICE}", token=token) as client:
        end = time.monotonic() + STARTUP_S
        while not _has_worker(client):
            if time.monotonic() > end:
                raise TimeoutError("no worker has come")
            time.sleep(0.2)
        began = time.monotonic()
        result = client.tune(PROBLEM, trials=trials, seed=1)
        seconds = time.monotonic() - began
        times = {
            trial.hash: trial.time_us
            for trial in client.stored_trials(PROBLEM)
            if trial.time_us is not None
        }
        return seconds, result, times


def _has_worker(client: Client) -> bool:
    try:
        return bool(client.targets().workers)
    except Exception:
        return False


def _in_namespace(ask: Any, *arguments: Any) -> Any:
    """What a function returns in a thread that is in the namespace of the service; its error."""
    found: list[Any] = []

    def run() -> None:
        with Path(f"/var/run/netns/{NEAR}").open() as namespace:
            _set_namespace(namespace.fileno())
        try:
            found.append(ask(*arguments))
        except Exception as error:
            found.append(f"{type(error).__name__}: {error}")

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(JOB_S)
    return found[0] if found else "the job did not end"


def _set_namespace(descriptor: int) -> None:
    """setns(2) of this thread, which `os` has from 3.12 on alone."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, 0x40000000):
        raise OSError(ctypes.get_errno(), "setns")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--delay-ms", type=float, default=100.0, help="of each packet, one way")
    parser.add_argument("--loss", type=float, default=0.01, help="share of packets")
    parser.add_argument("--trials", type=int, default=24)
    options = parser.parse_args(arguments)
    rows = {}
    for name in (NEAR, FAR):
        with namespaces(options.delay_ms / 1e3, options.loss) as link:
            rows[name] = searched(name, options.trials)
            seconds, result, times = rows[name]
            print(
                f"{name.removeprefix('tilewise-'):<5} {seconds:6.1f} s  {len(times)} schedules  "
                f"best {result.best.gflops:.1f} GFLOP/s {result.best.interval}  "
                f"{link.carried} packets carried, {link.lost} lost",
                flush=True,
            )
    near, far = rows[NEAR][2], rows[FAR][2]
    ratios = [far[one] / near[one] for one in near.keys() & far.keys()]
    low, _, high = quantiles(ratios, n=4)
    print(f"{len(ratios)} schedules in both: {median(ratios):.3f} ({low:.3f} to {high:.3f})")


if __name__ == "__main__":
    main()
