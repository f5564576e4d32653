"""One search on simulated timings, kept in different places; its trials, as each place has them."""

from dataclasses import replace

from tests.service import fakes
from tests.service.cluster.tuners import SIMULATED
from tests.service.conftest import TOOLCHAIN
from tests.service.runs import simulated
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.target import resolve
from tilewise.search.records import TrialRecord, TuneRequest
from tilewise.search.store import MemoryStore
from tilewise.service.db import make_engine, writing
from tilewise.service.db.session import make_sessions
from tilewise.service.host.machine import MachineInfo
from tilewise.service.host.process_identity import me
from tilewise.service.jobs import lease, queue
from tilewise.service.jobs.trial_store import SqlTrialStore
from tilewise.service.runs.keeper import SqlKeeper
from tilewise.service.workers.job_run import run_job

PROBLEM = parse_problem("conv2d:n=1,h=14,w=14,ci=16,co=32,kh=3,kw=3,dtype=f32").canonical
TRIALS = 24
WANTED = TuneRequest(trials=TRIALS, seed=SIMULATED)


def in_memory(machine: MachineInfo) -> list[TrialRecord]:
    """What the engine alone finds; stores have no field for which trial takes over as control."""
    store = MemoryStore()
    simulated.tune(parse_problem(PROBLEM), resolve(machine.target), WANTED, store)
    return [replace(trial, takes_over=False) for trial in store.trials()]


def in_database(url: str, machine: MachineInfo) -> list[TrialRecord]:
    """A job that the embedded engine runs, as a service without a cluster has it run."""
    engine = make_engine(url)
    sessions, parts = make_sessions(engine), (parse_problem(PROBLEM), machine.target)
    with writing(sessions) as session:
        job = queue.create_or_join(session, *parts, WANTED, TOOLCHAIN).job
        held = lease.claim_one(session, job.id, me())
    keeper, fake = SqlKeeper(sessions, held), {"prover": fakes.prove, "machine": machine}
    assert run_job(keeper, tuner=simulated.tune, **fake).state == "done"
    engine.dispose()
    return of_job(url, held.job_id)


def of_job(url: str, job_id: int) -> list[TrialRecord]:
    """The trials that a database has of a job."""
    engine = make_engine(url)
    try:
        return SqlTrialStore(make_sessions(engine), job_id).trials()
    finally:
        engine.dispose()
