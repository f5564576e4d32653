"""A run that does nothing but commit trials, and says of each that it was acknowledged.

`python -m benchmarks.surviving.writer URL JOB SYNCHRONOUS`; a line with the trial's number each.
"""

import os
import sys
from random import Random

from tilewise.kernels.schedule import Register, Schedule, Unroll
from tilewise.search.records import Measurement, TrialRecord
from tilewise.service.db import make_engine, session, writing
from tilewise.service.db.session import make_sessions
from tilewise.service.host.process_identity import me
from tilewise.service.jobs import lease
from tilewise.service.jobs.trial_store import SqlTrialStore


def trial(job_id: int, number: int) -> TrialRecord:
    """The trial of a number, the same whenever it is asked for."""
    chance = Random(job_id * 1_000_003 + number)
    gflops = chance.uniform(1.0, 100.0)
    return TrialRecord(
        number=number,
        schedule=Schedule((Register(number % 14 + 1, 16), Unroll(number // 14 + 1))),
        params={"rows": number, "outer": "cols", "pack": True},
        state="timed",
        origin="prior",
        measurement=Measurement(gflops, (gflops * 0.99, gflops * 1.01), 1e3 / gflops),
        samples=tuple(chance.random() for _ in range(30)),
        speed_factor=1.0,
        rejected=0,
        compile_s=0.1,
        max_error=0.0,
    )


def main(url: str, job_id: str, synchronous: str) -> None:
    """Commit trials until the process is killed."""
    session.SYNCHRONOUS = synchronous
    sessions, number = make_sessions(make_engine(url)), int(job_id)
    with writing(sessions) as opened:
        held = lease.claim_one(opened, number, me())
    assert held is not None, "somebody runs the job"
    store, done = SqlTrialStore(sessions, number, held), 0
    while True:
        store.add(trial(number, done))
        os.write(sys.stdout.fileno(), f"{done}\n".encode())
        done += 1


if __name__ == "__main__":
    main(*sys.argv[1:])
