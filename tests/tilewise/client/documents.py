"""What a service answers with, made up: whole objects, of which tests change a part."""

import asyncio
import inspect
import json
from collections.abc import Callable
from typing import Any

import httpx

from tilewise import AsyncClient, Client

Answer = Callable[[httpx.Request], httpx.Response]
Json = dict[str, Any]
PROBLEM = "matmul:m=4,n=4,k=4,dtype=f32"
RANGE = "matmul:m=1..4,n=4,k=4,dtype=f32"
MOMENT = "2026-11-23T10:00:00+00:00"

BEST: Json = {
    "hash": "h", "steps": [{"step": "register", "rows": 4}], "gflops": 5.0,
    "interval": [4.5, 5.5], "time_us": 2.0, "peak_fraction": 0.5,
    "scratch_bytes": {"A": 64}, "measured": None,
}  # fmt: skip
PROOF: Json = {
    "applied": True, "executed": True, "max_error": 1e-7, "tolerance": 1e-5, "gflops": 4.0,
    "interval": [3.9, 4.1], "time_us": 2.5, "mlir": "iree-base-compiler 3.13.0",
    "failure": None, "message": "", "hash": "h", "sha256": "0" * 64,
}  # fmt: skip
COUNTS: Json = {"asked": 4, "timed": 4, "pruned": 0, "failed": 0}


def result(**changes: Any) -> Json:
    """The best schedule of a problem."""
    return {
        "problem": PROBLEM, "key": "k" * 64, "target": "cpu:znver5,threads=1", "cache": "hot",
        "toolchain": "t", "trials": COUNTS, "space": None, "elapsed_s": 1.5, "best": BEST,
        "peers": {"openblas": {"gflops": 4, "interval": [3.0, 5.0], "time_us": 2.5}},
        "proof": PROOF, "complete": True, "stale": False,
        "match": {"kind": "exact", "differs": {}}, "created": MOMENT,
    } | changes  # fmt: skip


def tuned_range(**changes: Any) -> Json:
    """The variants of a range of sizes."""
    return {
        "problem": RANGE, "key": "k" * 64, "target": "cpu:znver5,threads=1", "cache": "hot",
        "toolchain": "t", "dim": "m", "formats": 1, "trials": 4, "elapsed_s": 9.5,
        "variants": [{"hash": "h", "steps": BEST["steps"], "m": [1, 4]}], "spans": [[1, 4, 0]],
        "loss": {"geometric_mean": 0.0, "worst": 0.0}, "stale": False, "created": MOMENT,
        "samples": [{"size": 4, "best": "h", "best_us": 2.0, "times_us": [2.0], "variant": 0,
                     "gflops": 5.0}],
    } | changes  # fmt: skip


def job(**changes: Any) -> Json:
    """A job that runs."""
    return {
        "id": 1, "state": "running", "problem": PROBLEM, "key": "k" * 64, "target": "t",
        "cache": "hot", "toolchain": "t", "trials": COUNTS, "elapsed_s": 0.5,
        "phase": {"name": "search", "done": 1, "total": 4}, "best": None, "error": None,
        "complete": None, "created": MOMENT, "started": MOMENT, "finished": None,
        "links": {"self": "/v1/jobs/1", "events": "/v1/jobs/1/events"},
    } | changes  # fmt: skip


def model(**changes: Any) -> Json:
    """A model of one problem that runs."""
    part = {"problem": PROBLEM, "count": 2, "where": ["@f 1:1", "@f 2:1"], "key": "k" * 64,
            "state": "running", "job": 1, "time_us": None}  # fmt: skip
    return {
        "id": 1, "state": "running", "sha256": "0" * 64, "target": "t", "toolchain": "t",
        "cache": "hot", "trials": 3, "problems": [part], "skipped": [], "time_us": None,
        "created": MOMENT, "links": {"self": "/v1/models/1"},
    } | changes  # fmt: skip


def plan(**changes: Any) -> Json:
    """A plan of one problem that is tuned."""
    told = {"state": "done", "job": 1, "time_us": 2.5, "key": "k" * 64}
    return {
        "id": 1, "state": "running", "phase": "tuning", "name": "m.mlir", "sha256": "0" * 64,
        "target": "t", "toolchain": "t", "cache": "hot", "trials": 3, "seed": 0, "layouts": "all",
        "problems": [{"problem": PROBLEM, "count": 2, "where": ["@f 1:1", "@f 2:1"], **told}],
        "variants": [{"problem": PROBLEM, **told}], "skipped": [], "plan": None, "totals": None,
        "proof": None, "script_error": None, "error": None, "created": MOMENT, "started": None,
        "finished": None, "links": {"self": "/v1/plans/1"},
    } | changes  # fmt: skip


def plan_stream() -> str:
    """Its events: a phase, a problem twice, the end."""
    part = {**plan()["variants"][0], "done": 1, "total": 1}
    told = [("phase", {"name": "tuning", "done": 0, "total": 1}), ("part", part), ("part", part),
            ("end", plan(state="done", phase=None))]  # fmt: skip
    return "".join(event(name, data) for name, data in told)


def trial(number: int = 0, **changes: Any) -> Json:
    """A trial that was timed."""
    return {
        "number": number, "hash": "h", "steps": [], "params": {"rows": 4}, "state": "timed",
        "origin": "prior", "failure": None, "message": "", "gflops": 5.0 + number,
        "interval": [4.0, 6.0], "time_us": 2.0, "samples_us": [2.0, 2.5], "pace": 1.0,
        "cache": "hot", "rejected": 0, "compile_s": 0.1, "max_error": 0.0, "created": MOMENT,
    } | changes  # fmt: skip


def stored_trial(number: int = 0, **changes: Any) -> Json:
    """A trial with its job."""
    return {"job": 1, "problem": PROBLEM, "target": "t", "toolchain": "t"} | trial(number) | changes


def suite_report(**changes: Any) -> Json:
    """A report of a suite as a list shows it."""
    return {
        "id": 3, "suite": "square", "source": "", "target": "t", "processor": "p",
        "toolchain": "t", "counted": 6, "left_out": 0, "geomean_ratio": 1.2, "ours_gflops": 12.0,
        "oracle_gflops": 10.0, "created": MOMENT,
    } | changes  # fmt: skip


def token() -> Json:
    """A token as a list shows it."""
    times = {"created": MOMENT, "expires": None, "revoked": None, "used": MOMENT}
    return {"name": "ci", "scope": "read", **times}


def object_files(**changes: Any) -> Json:
    """A kernel as machine code."""
    return {
        "problem": PROBLEM, "target": "cpu:x,threads=1", "schedule": "h", "symbol": "tilewise_x_h",
        "alias": "tilewise_x", "features": ["avx2"], "toolchain": "t", "gflops": 5.0,
        "scratch_bytes": 64, "packed_bytes": 0, "parts": 1,
        "header": "int tilewise_x_h(void);", "object": "AAEC", "bitcode": "AwQ=",
        "proof": {"max_error": 1e-7, "tolerance": 1e-5},
    } | changes  # fmt: skip


def new_token() -> Json:
    """A token as it is told once."""
    return {"name": "ci", "scope": "read", "expires": MOMENT, "token": "tw_secret"}


def event(name: str, data: Json, number: int | None = None) -> str:
    """An event as the service writes it."""
    last = "" if number is None else f"id: {number}\n"
    return f"event: {name}\ndata: {json.dumps(data)}\n{last}\n"


def stream(*numbers: int, end: Json | None = None) -> str:
    """The events of some trials, and of the job's end."""
    trials = "".join(event("trial", trial(number), number) for number in numbers)
    return "retry: 1000\n\n" + trials + ("" if end is None else event("end", end))


def call(service: Answer, method: str, *given: Any, is_async: bool = False, **options: Any) -> Any:
    """Call a method of one of the clients without pauses; return all that a generator yields."""
    transport = httpx.MockTransport(service)
    if not is_async:
        with Client("http://fake", transport, sleep=lambda _: None) as client:
            found = getattr(client, method)(*given, **options)
            return list(found) if inspect.isgenerator(found) or isinstance(found, map) else found

    async def no_sleep(_seconds: float) -> None: ...

    async def steps() -> Any:
        async with AsyncClient("http://fake", transport, sleep=no_sleep) as client:
            made = getattr(client, method)(*given, **options)
            return [one async for one in made] if inspect.isasyncgen(made) else await made

    return asyncio.run(steps())
