"""A mixed load on a service for a while: no error, and memory that stays flat.

    python -m benchmarks.serving.soak [--minutes 20] [--clients 6]

A service with one worker, whose search is the real one, is asked over loopback by several clients
at once: scripts with and without their tags, look-ups, lists, metrics, jobs that are asked for,
followed by their events and cancelled, requests that make no sense. The table has requests by kind
and status, percentiles of their times in milliseconds, and the resident memory of the service in
MiB over the run. It exits with 1 where an answer is an error of the service, or memory at the end
is more than a tenth above what it was after a fifth of the time.
"""

import argparse
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import httpx
import psutil

from benchmarks.report import conditions
from benchmarks.serving.fetching import store_of
from benchmarks.serving.service_process import ServiceProcess
from benchmarks.serving.store import problem
from tilewise import Client, TilewiseError

SCRIPTS = 100
SAMPLE_S = 1.0
FLAT = 1.10
WARM = 0.2  # of the time, until memory is compared
MIB = 1024**2


@dataclass
class Seen:
    """What all clients have seen."""

    answers: Counter[tuple[str, int]] = field(default_factory=Counter)
    ms: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    faults: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, kind: str, answer: httpx.Response, seconds: float) -> None:
        """Keep one answer."""
        with self.lock:
            self.answers[kind, answer.status_code] += 1
            self.ms[kind].append(1e3 * seconds)
            if answer.status_code >= 500:
                self.faults.append(f"{kind}: {answer.status_code} {answer.text[:200]}")


class Load:
    """One client, which asks this and that until it is told to end."""

    def __init__(self, url: str, seen: Seen, seed: int, ending: threading.Event) -> None:
        self._http = httpx.Client(base_url=url, timeout=30)
        self._client = Client(url)
        self._seen, self._rng, self._ending = seen, random.Random(seed), ending
        self._tags: dict[str, str] = {}

    def run(self) -> None:
        """Ask."""
        kinds: list[tuple[int, Callable[[], None]]] = [
            (40, self._script), (10, self._look_up), (10, self._lists), (2, self._metrics),
            (2, self._nonsense), (1, self._job),
        ]  # fmt: skip
        weights = [weight for weight, _ in kinds]
        while not self._ending.is_set():
            ((_, ask),) = self._rng.choices(kinds, weights)
            try:
                ask()
            except (httpx.HTTPError, TilewiseError) as error:
                self._seen.faults.append(f"{ask.__name__}: {error!r}")
            time.sleep(self._rng.random() * 0.02)

    def _get(self, kind: str, path: str, **options: Any) -> httpx.Response:
        return self._send(kind, "GET", path, **options)

    def _send(self, kind: str, method: str, path: str, **options: Any) -> httpx.Response:
        begin = time.perf_counter()
        answer = self._http.request(method, path, **options)
        self._seen.note(kind, answer, time.perf_counter() - begin)
        return answer

    def _script(self) -> None:
        key = problem(self._rng.randrange(1, SCRIPTS + 1)).key
        tag = self._tags.get(key) if self._rng.random() < 0.5 else None
        headers = {"If-None-Match": tag} if tag else {}
        answer = self._get("script", f"/v1/schedules/{key}/script", headers=headers)
        if answer.is_success:
            self._tags[key] = answer.headers["ETag"]

    def _look_up(self) -> None:
        asked = [str(problem(n)) for n in self._rng.sample(range(1, 2 * SCRIPTS), 20)]
        body = {"problems": asked, "files": ["cpu"]}
        self._send("look-up", "POST", "/v1/schedules/lookup", json=body)

    def _lists(self) -> None:
        path = self._rng.choice(["/v1/jobs?limit=20", "/v1/trials?limit=20", "/v1/targets"])
        self._get("list", path)

    def _metrics(self) -> None:
        self._get("metrics", self._rng.choice(["/metrics", "/readyz", "/openapi.json"]))

    def _nonsense(self) -> None:
        self._send("nonsense", "POST", "/v1/jobs", content=self._rng.randbytes(50))

    def _job(self) -> None:
        """Ask for a search, follow some of it, and call it off."""
        shape = [self._rng.randrange(8, 64) for _ in range(3)]
        wanted = "matmul:m={},n={},k={},dtype=f32".format(*shape)
        body = {"problem": wanted, "trials": self._rng.randrange(2, 9)}
        answer = self._send("job", "POST", "/v1/jobs", json=body)
        if answer.status_code != 202:
            return
        number = answer.json()["id"]
        for count, _ in enumerate(self._client.events(number)):
            if count > 2 or self._ending.is_set():
                break
        if self._rng.random() < 0.5:
            self._send("cancel", "DELETE", f"/v1/jobs/{number}")


def soak(url: str, pid: int, seconds: float, clients: int) -> tuple[Seen, list[float]]:
    """What the clients have seen, and the service's memory in MiB each second."""
    seen, ending = Seen(), threading.Event()
    loads = [Load(url, seen, seed, ending) for seed in range(clients)]
    threads = [threading.Thread(target=load.run, daemon=True) for load in loads]
    for thread in threads:
        thread.start()
    memory, process = list[float](), psutil.Process(pid)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        memory.append(process.memory_info().rss / MIB)
        time.sleep(SAMPLE_S)
    ending.set()
    for thread in threads:
        thread.join(60)
    return seen, memory


def report(seen: Seen, memory: list[float]) -> bool:
    """Print what was seen; whether all is well."""
    print(f"{'kind':<10}{'requests':>9}{'median':>8}{'p99':>8}{'most':>8}  statuses")
    for kind, times in sorted(seen.ms.items()):
        statuses = {status: count for (of, status), count in seen.answers.items() if of == kind}
        p99 = quantiles(times, n=100)[-1] if len(times) > 1 else times[0]
        told = ", ".join(f"{status} {count}" for status, count in sorted(statuses.items()))
        speeds = f"{median(times):>8.1f}{p99:>8.1f}{max(times):>8.1f}"
        print(f"{kind:<10}{len(times):>9}{speeds}  {told}")
    share = max(1, len(memory) // 20)
    warm = int(len(memory) * WARM)
    begin, end = median(memory[warm : warm + share]), median(memory[-share:])
    print(f"memory: {begin:.0f} MiB after a fifth of the time, {end:.0f} at the end, "
          f"{max(memory):.0f} at most; ratio {end / begin:.3f}")  # fmt: skip
    for fault in seen.faults[:10]:
        print(f"fault: {fault}")
    return not seen.faults and end <= FLAT * begin


def main() -> int:
    """Soak a service; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--clients", type=int, default=6)
    options = parser.parse_args()
    print(conditions())
    with tempfile.TemporaryDirectory() as name:
        os.environ["TILEWISE_CACHE_DIR"] = str(Path(name) / "cache")
        url = f"sqlite:///{Path(name) / 'store.db'}"
        store_of(url, SCRIPTS)
        with ServiceProcess(url, workers=1, toolchain="") as service:
            pid, seconds = service.process.pid, 60 * options.minutes
            seen, memory = soak(service.url, pid, seconds, options.clients)
            service.require_alive()
    return 0 if report(seen, memory) else 1


if __name__ == "__main__":
    sys.exit(main())
