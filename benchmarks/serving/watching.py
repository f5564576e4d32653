"""Fifty clients that watch one job for its whole life, each torn away five times.

    python -m benchmarks.serving.watching [--clients 50] [--tears 5] [--trials 64]

Two service processes on one database; one of them runs the job, with the real search. Each client
follows the job's events at one of the two, and breaks its connection off at moments of chance. The
table says how many of them have seen every trial once and in order, and the end; it exits with 1
where one has not.
"""

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
from pathlib import Path

import httpx

from benchmarks.report import conditions
from benchmarks.serving.service_process import ServiceProcess
from tilewise.client.events import JobEnded, TrialEnded, of_job
from tilewise.service.db import schema

PROBLEM = "matmul:m=256,n=256,k=256,dtype=f32"


async def watch(urls: list[str], job: int, tears: int, rng: random.Random) -> tuple[list[int], int]:
    """The numbers of the trials that one client has seen, and how often it was torn away."""
    follower, numbers, torn = of_job(job), list[int](), 0
    async with httpx.AsyncClient(timeout=60) as http:
        while not follower.is_over:
            left = rng.randrange(1, 15) if torn < tears else None
            address = f"{rng.choice(urls)}{follower.path}"
            async with http.stream("GET", address, headers=follower.headers) as response:
                response.raise_for_status()
                async for text in response.aiter_text():
                    for event in follower.feed(text):
                        if isinstance(event, TrialEnded):
                            numbers.append(event.trial.number)
                        if isinstance(event, JobEnded):
                            assert event.job.state == "done", event.job.error
                    if left is not None:
                        left -= 1
                        if left <= 0:
                            torn += 1
                            break
            await asyncio.sleep(rng.random() * 0.2)
    return numbers, torn


async def watch_all(
    urls: list[str], job: int, clients: int, tears: int
) -> list[tuple[list[int], int]]:
    """All clients at once."""
    rngs = [random.Random(seed) for seed in range(clients)]
    return await asyncio.gather(*(watch(urls, job, tears, rng) for rng in rngs))


def main() -> int:
    """Run the job, and print what its watchers saw; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--tears", type=int, default=5)
    parser.add_argument("--trials", type=int, default=64)
    options = parser.parse_args()
    print(conditions())
    with tempfile.TemporaryDirectory() as name:
        os.environ["TILEWISE_CACHE_DIR"] = str(Path(name) / "cache")
        url = f"sqlite:///{Path(name) / 'store.db'}"
        schema.upgrade(url)
        with ServiceProcess(url, workers=1, toolchain="") as one, ServiceProcess(url) as other:
            body = {"problem": PROBLEM, "trials": options.trials}
            job = httpx.post(f"{one.url}/v1/jobs", json=body).json()["id"]
            begin = time.perf_counter()
            urls = [one.url, other.url]
            found = asyncio.run(watch_all(urls, job, options.clients, options.tears))
            took = time.perf_counter() - begin
    whole = sum(numbers == list(range(options.trials)) for numbers, _ in found)
    torn = sum(count for _, count in found)
    print(f"{whole} of {len(found)} clients saw all {options.trials} trials once and in order, "
          f"and the end; torn away {torn} times; {took:.1f} s")  # fmt: skip
    return 0 if whole == len(found) else 1


if __name__ == "__main__":
    sys.exit(main())
