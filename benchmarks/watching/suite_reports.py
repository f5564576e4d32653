"""Reports of suites as `tilewise bench` stores them, of any number: for the page of suites."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from math import exp, log
from random import Random
from typing import Any

from tilewise.kernels.problem import Matmul

Json = dict[str, Any]

SUITES = ("square", "resnet50")
PROBLEMS = 40  # of each report
PEERS = {"openblas": "OpenBLAS 0.3.33", "onednn": "oneDNN 3.10"}


def reports(target: str, toolchains: tuple[str, ...], end: datetime, days: int) -> Iterator[Json]:
    """A report of each suite for each day, with the moment when it was stored.

    Args:
        target: of all of them.
        toolchains: each for an equal part of the time.
        end: when the last one is stored.
        days: how many there are of each suite.
    """
    for day in range(days):
        for suite in SUITES:
            toolchain = toolchains[day * len(toolchains) // days]
            stored = end - timedelta(days=days - 1 - day)
            yield {"created_at": stored, "report": _report(suite, target, toolchain, day)}


def _report(suite: str, target: str, toolchain: str, day: int) -> Json:
    rows = [_row(suite, number, day) for number in range(1, PROBLEMS + 1)]
    counted = [row for row in rows if row["ratio"]]
    ours = sum(row["ours"]["time_us"] for row in counted)
    peers = sum(row["peers"]["onednn"]["time_us"] for row in counted)
    return {
        "suite": suite, "source": "made for measuring pages",
        "machine": {
            "processor": "AMD EPYC", "target": target, "cores": 2, "memory_gib": 15.6,
            "caches": {"l1": 32768, "l2": 1048576, "l3": 33554432}, "bandwidth_gbs": 20.0,
            "system": "Linux 6.1, Python 3.11", "toolchain": toolchain, "peers": PEERS,
            "peak_gflops": {"f32": 140.0},
        },
        "problems": rows, "counted": len(counted), "left_out": len(rows) - len(counted),
        "geomean_ratio": exp(sum(log(row["ratio"]) for row in counted) / len(counted)),
        "weighted": {
            "ours_gflops": 100.0, "oracle_gflops": 100.0 * ours / peers, "ours_s": ours / 1e6,
            "oracle_s": peers / 1e6, "ratio": peers / ours,
        },
    }  # fmt: skip


def _row(suite: str, number: int, day: int) -> Json:
    problem = Matmul(m=16 * number, n=64, k=64 + len(suite), dtype="f32")
    chance = Random(number)
    ours = 140.0 * chance.uniform(0.5, 0.95) * Random(number * 1000 + day).uniform(0.97, 1.03)
    peer = ours / chance.uniform(0.8, 1.6)
    left_out = number % 13 == 0
    return {
        "problem": problem.canonical, "label": f"layer {number}", "count": number % 3 + 1,
        "ours": None if left_out else {**_speed(problem, ours), "peak_fraction": ours / 140.0},
        "reason": "takes more memory than this machine has" if left_out else "",
        "schedule": None if left_out else f"{number:016x}",
        "peers": {"onednn": {**_speed(problem, peer), "variant": "any"}},
        "absent": {"openblas": "crash: signal 11"},
        "oracle": {"peer": "onednn", "gflops": peer},
        "ratio": None if left_out else ours / peer,
    }  # fmt: skip


def _speed(problem: Matmul, gflops: float) -> Json:
    return {
        "gflops": gflops,
        "interval": [0.99 * gflops, 1.01 * gflops],
        "time_us": problem.flops / gflops / 1e3,
    }
