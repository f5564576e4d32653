"""What requests cost that look at very many rows, with the indexes and without them.

    python -m benchmarks.serving.store [--schedules 100000] [--trials 1000000] [--scripts 5000]

Builds a SQLite database in a temporary folder by plain inserts: a problem, a job and a schedule
for each of the schedules, the trials spread evenly over the jobs, a proven script for the first
ones. A copy of it lacks the indexes in `WITHOUT`. The two are asked in turns, `--rounds` times;
the columns are medians of this process's time on the processor in milliseconds, SQLite's and
the client's own included. `rows of a script` is the query alone, with the comparison of what it
finds with its digest.
"""

import argparse
import hashlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

from fastapi.testclient import TestClient
from sqlalchemy import Connection, insert

from benchmarks.report import conditions
from tilewise.kernels.problem import Matmul, Problem
from tilewise.kernels.schedule import Register, Schedule, Unroll
from tilewise.service.app import create_app
from tilewise.service.db import make_engine, models, schema
from tilewise.service.db.base import now
from tilewise.service.db.session import make_sessions, reading, write_connection
from tilewise.service.db.trials import pack_samples
from tilewise.service.host.machine import examine
from tilewise.service.results import scripts
from tilewise.service.results.integrity import proof_digest, result_digest
from tilewise.service.results.stored import Lookup, ResultKey
from tilewise.service.settings import Settings

ASKED = 500
ROWS_AT_ONCE = 10_000
TEXT = "// a line as long as those of a script are, so that a text has 8 KB\n" * 120
TOOLCHAIN = "benchmark"
WITHOUT = ("ix_jobs_state_id", "ix_jobs_work", "ix_trials_ended")
STEPS = [Schedule((Register(rows, 16), Unroll(2))) for rows in range(1, 15)]


@dataclass(frozen=True)
class Sizes:
    """How many rows of each kind."""

    schedules: int
    trials: int
    scripts: int


def problem(number: int) -> Problem:
    """A problem for each number."""
    return Matmul(m=number, n=64, k=64, dtype="f32")


def build(connection: Connection, sizes: Sizes, target: str) -> None:
    """Fill an empty database."""
    per_job = sizes.trials // sizes.schedules
    toolchain = {"id": 1, "identity": TOOLCHAIN, "created_at": now()}
    machine = {"id": 1, "host": "h", "cpu": "c", "cores": 1, "memory_bytes": 1, "caches": {}}
    numbers = range(1, sizes.schedules + 1)
    rows: dict[Any, Iterator[dict[str, Any]]] = {
        models.Toolchain: iter([toolchain]),
        models.Machine: iter([machine | {"seen_at": now()}]),
        models.Problem: (_problem(n) for n in numbers),
        models.Job: (_job(n, target, per_job) for n in numbers),
        models.Trial: (_trial(n, t) for n in numbers for t in range(per_job)),
        models.Schedule: (_schedule(n, target, per_job) for n in numbers),
        models.Script: (_script(n) for n in range(1, sizes.scripts + 1)),
        models.Proof: (_proof(n, target) for n in range(1, sizes.scripts + 1)),
    }
    for model, values in rows.items():
        while page := list(islice(values, ROWS_AT_ONCE)):
            connection.execute(insert(model.__table__), page)


def _problem(n: int) -> dict[str, Any]:
    made = problem(n)
    return {"id": n, "key": made.key, "canonical": made.canonical, "created_at": now()}


def _job(n: int, target: str, trials: int) -> dict[str, Any]:
    return {
        "id": n, "problem_id": n, "target": target, "toolchain_id": 1, "trials": trials,
        "seed": 0, "sampler": "surrogate", "peers": False, "cache": "hot", "state": "done",
        "epoch": 1, "crashes": 0, "elapsed_s": 1.0, "complete": True, "created_at": now(),
    }  # fmt: skip


def _trial(n: int, number: int) -> dict[str, Any]:
    tried = STEPS[number % len(STEPS)]
    return {
        "job_id": n, "number": number, "hash": tried.hash, "steps": tried.to_json(),
        "params": {"rows": number, "outer": "cols", "pack": True}, "state": "timed",
        "origin": "prior", "message": "", "gflops": 10.0 + number, "low": 9.0, "high": 99.0,
        "time_us": 100.0 / (10.0 + number), "samples": pack_samples((1e-4,) * 21), "pace": 1.0,
        "rejected": 0, "compile_s": 0.1, "max_error": 0.0, "created_at": now(),
    }  # fmt: skip


def _work(n: int, target: str) -> ResultKey:
    made = problem(n)
    return ResultKey(made.key, made.canonical, target, TOOLCHAIN, "hot")


def _schedule(n: int, target: str, budget: int) -> dict[str, Any]:
    best = STEPS[n % len(STEPS)]
    values = {
        "job_id": n, "hash": best.hash, "steps": best.to_json(), "gflops": 99.0, "low": 98.0,
        "high": 100.0, "time_us": 1.0, "peak_gflops": 120.0, "scratch_bytes": {"A": 64, "B": 64},
        "measured": {"samples": 21, "placements": 6, "rejected": 0, "disturbed": 0, "cold": None},
        "budget": budget, "elapsed_s": 1.0, "complete": True,
    }  # fmt: skip
    digest = result_digest(_work(n, target), models.Schedule(**values))
    of = {"id": n, "problem_id": n, "target": target, "toolchain_id": 1, "machine_id": 1}
    return {**of, "cache": "hot", **values, "digest": digest, "created_at": now()}


def _spelled(n: int) -> dict[str, Any]:
    spelled, text = STEPS[n % len(STEPS)], f"// {n}\n{TEXT}"
    named = {"flavor": "cpu", "hash": spelled.hash, "steps": spelled.to_json(), "text": text}
    return {**named, "sha256": hashlib.sha256(text.encode()).hexdigest()}


def _script(n: int) -> dict[str, Any]:
    return {"id": n, "schedule_id": n, **_spelled(n), "created_at": now()}


def _proof(n: int, target: str) -> dict[str, Any]:
    values = {
        "ok": True, "applied": True, "executed": True, "max_error": 1e-7, "tolerance": 1e-5,
        "gflops": 90.0, "low": 89.0, "high": 91.0, "time_us": 1.1, "mlir": "benchmark",
        "message": "",
    }  # fmt: skip
    proof = models.Proof(**values, script=models.Script(**_spelled(n)))
    digest = proof_digest(_work(n, target), proof)
    of = {"id": n, "schedule_id": n, "script_id": n}
    return {**of, **values, "digest": digest, "created_at": now()}


def requests(client: TestClient, url: str, sizes: Sizes, target: str) -> dict[str, Any]:
    """What is timed, by name."""
    sessions = make_sessions(make_engine(url))
    step = max(1, sizes.scripts // ASKED)
    asked = [problem(n).canonical for n in range(1, sizes.scripts + 1, step)][:ASKED]
    late = sizes.trials - sizes.trials // 100

    def look_up() -> None:
        body = {"problems": asked, "target": target}
        found = client.post("/v1/schedules/lookup", json=body).json()["schedules"]
        assert all(one["schedule"]["proof"] for one in found)

    def page(cursor: int) -> None:
        answer = client.get("/v1/trials", params={"cursor": cursor}).json()
        assert len(answer["trials"]) == 100

    def script() -> None:
        with reading(sessions) as session:
            for text in asked[:100]:
                key = hashlib.sha256(text.encode()).hexdigest()
                found = scripts.served_script(session, key, Lookup(target, TOOLCHAIN))
                assert found is not None and found.script is not None

    return {
        f"look-up of {len(asked)} problems": look_up,
        "/v1/trials from the start": lambda: page(0),
        f"/v1/trials from cursor {late}": lambda: page(late),
        "rows of a script, 100 times": script,
        "/v1/jobs": lambda: client.get("/v1/jobs").raise_for_status(),
        "/v1/jobs?state=done": lambda: client.get("/v1/jobs?state=done").raise_for_status(),
    }


def milliseconds(request: Callable[[], None]) -> float:
    """Of processor time."""
    begin = time.process_time()
    request()
    return 1e3 * (time.process_time() - begin)


def without_indexes(file: Path) -> Path:
    """A copy of the database that lacks `WITHOUT`."""
    copy = file.with_name("bare.db")
    shutil.copy(file, copy)
    engine = make_engine(f"sqlite:///{copy}")
    with write_connection(engine) as connection:
        for name in WITHOUT:
            connection.exec_driver_sql(f"DROP INDEX {name}")
    engine.dispose()
    return copy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--schedules", type=int, default=100_000)
    parser.add_argument("--trials", type=int, default=1_000_000)
    parser.add_argument("--scripts", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    rounds = range(options.rounds)
    sizes = Sizes(options.schedules, options.trials, min(options.scripts, options.schedules))
    machine = examine()
    print(conditions())
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        file = Path(folder) / "store.db"
        url = f"sqlite:///{file}"
        schema.upgrade(url)
        engine = make_engine(url)
        with write_connection(engine) as connection:
            build(connection, sizes, machine.target)
        engine.dispose()  # the last connection writes the log into the file
        print(f"{sizes}, {file.stat().st_size / 1e6:.0f} MB")
        timed = []
        for database in (file, without_indexes(file)):
            url = f"sqlite:///{database}"
            app = create_app(
                Settings(db=url, allowed_hosts="testserver"),
                0,
                machine=machine,
                toolchain=TOOLCHAIN,
            )
            client = stack.enter_context(TestClient(app))
            timed.append(requests(client, url, sizes, machine.target))
        indexed, bare = timed
        print(f"{'request':<36} {'ms':>9} {'without':>9} {'ratio':>7}")
        for name in indexed:
            indexed[name]()
            bare[name]()
            took = [(milliseconds(indexed[name]), milliseconds(bare[name])) for _ in rounds]
            ours, theirs = map(median, zip(*took, strict=True))
            print(f"{name:<36} {ours:>9.1f} {theirs:>9.1f} {theirs / ours:>7.1f}", flush=True)


if __name__ == "__main__":
    main()
