from dataclasses import replace
from functools import partial

import pytest

from tests.service import fakes
from tests.service.conftest import PROBLEM, TOOLCHAIN
from tests.service.runs.conftest import OWNER, changed
from tilewise.kernels.mlir.cpu.script import emit_script
from tilewise.kernels.mlir.proof.proof import prover_of
from tilewise.kernels.mlir.transform.module import HEADER_END
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Register, Schedule, Unroll
from tilewise.kernels.target import TargetName
from tilewise.service.db import models, reading, writing
from tilewise.service.jobs import registry
from tilewise.service.jobs.registry import WorkerEntry
from tilewise.service.jobs.trial_store import SqlTrialStore
from tilewise.service.results.scripts import find_script
from tilewise.service.results.stored import Lookup
from tilewise.service.runs.checks import JobWork
from tilewise.service.runs.wire import BestWire, EndWire, MachineWire, TrialWire

ILLEGAL = [{"step": "register", "rows": 4, "cols": 16, "outer": "cols"}] * 2
BUDGET = 5


class Worker:
    """What holds the token of a job."""

    def __init__(self, machine, submit, offer, post, **request):
        self.problem = parse_problem(PROBLEM)
        self.machine = replace(machine, host="worker-host")
        self.job_id = submit(trials=BUDGET, **request)
        self.offer = offer()
        self.post = partial(post, self.offer)

    def begin(self, owner=OWNER):
        return self.post("begin", {"owner": owner, "toolchain": TOOLCHAIN})

    def trial(self, number=0, **changes):
        trial = fakes.trial(number, gflops=10.0 + number, flops=self.problem.flops)
        plain = TrialWire.model_validate(trial).model_dump(mode="json")
        return {"epoch": 1, "trial": plain | changes}

    def end(self):
        """The end of a search of one trial, as an honest worker sends it."""
        trial = fakes.trial(0, gflops=10.0, flops=self.problem.flops)
        speed = {"gflops": 10.0, "interval": [9.0, 11.0], "time_us": self.problem.flops / 1e4}
        steps = trial.schedule.to_json()
        best = {
            "steps": steps, "measurement": speed, "peak_gflops": 100.0, "runners_up": [],
            "scratch_bytes": {}, "samples": 21, "placements": 1, "rejected": 0, "disturbed": 0,
            "cold": None, "accuracy": {},
        }  # fmt: skip
        proof = {
            "ok": True, "applied": True, "executed": True, "max_error": 0.1, "tolerance": 0.5,
            **speed, "mlir": "iree-base-compiler 3.13.0", "failure": None, "message": "",
            "script": emit_script(self.problem, trial.schedule),
        }  # fmt: skip
        said = EndWire(
            epoch=1, best=BestWire(**best), peers={}, elapsed_s=1.0, complete=True,
            attempts=[{"steps": steps, "proof": proof}],
            machine=MachineWire.model_validate(self.machine),
        )  # fmt: skip
        return said.model_dump(mode="json")


@pytest.fixture
def employ(machine, submit, offer, post):
    return partial(Worker, machine, submit, offer, post)


@pytest.fixture
def worker(employ):
    made = employ()
    assert made.begin().status_code == 200
    return made


def fields(answer):
    assert answer.status_code == 422, answer.text
    return {error["field"] for error in answer.json()["errors"]}


SPEED = {"gflops": 1e12, "interval": [1e12, 1e12], "time_us": 1.96608e-10}


@pytest.mark.parametrize(("changes", "field"), [
    ({"number": 70}, "trial.number"), ({"steps": ILLEGAL}, "trial.steps"),
    ({"steps": [{"step": "pipeline", "passes": "CPUDefault", "remainders": "masked"}]}, ""),
    ({"measurement": SPEED}, "trial.measurement.gflops"), ({"samples": [-1.0]}, "trial.samples"),
    ({"compile_s": -1.0}, "trial.compile_s"), ({"pace": -1.0}, "trial"),
    ({"measurement": None}, "trial"),
    ({"state": "failed", "failure": "wrong"}, "trial.measurement"),
    ({"origin": "\x1b]0;title\x07"}, "trial.origin"),
])  # fmt: skip
def test_a_trial_that_is_none_of_the_job_is_refused(worker, sessions, changes, field):
    answer = worker.post("trials", worker.trial(**changes))
    found = fields(answer)
    assert field in found or (not field and found)
    assert SqlTrialStore(sessions, worker.job_id).trials() == []
    assert worker.post("trials", worker.trial()).status_code == 200, "the job is not harmed"


def test_a_budget_is_spent_once(worker):
    for number in range(BUDGET):
        assert worker.post("trials", worker.trial(number)).json() == {"word": "go"}
    assert fields(worker.post("trials", worker.trial(BUDGET))) == {"trial.number"}
    assert worker.post("trials", worker.trial(0)).status_code == 200, "sent again"


OTHER = Schedule((Register(rows=3, cols=16), Unroll(1))).to_json()


ENDS = [
    ("best.steps", ILLEGAL, "best.steps"), ("best.steps", OTHER, "best.steps"),
    ("best.measurement", SPEED, "best.measurement.gflops"),
    ("best.measurement.time_us", 1.0, "best.measurement.time_us"),
    ("best.measurement.interval", [-5.0, 11.0], "best.measurement.interval"),
    ("best.peak_gflops", 1e12, "best.peak_gflops"),
    ("best.runners_up", [[OTHER, SPEED]], "best.runners_up.0.steps"),
    ("best.accuracy", {"zeros": -1.0}, "best.accuracy.zeros"),
    ("best.cold", "cold\nquality  good", "best.cold"), ("peers", {"openblas": SPEED}, "peers"),
    ("elapsed_s", -1.0, "elapsed_s"), ("machine.host", "another-host", "machine.host"),
    ("machine.features", ["avx2", "fma"], "machine.features"),
    ("attempts.0.steps", ILLEGAL, "attempts.0.steps"),
    ("attempts.0.steps", OTHER, "attempts.0.proof.script"),
    ("attempts.0.proof.script", "anything\n", "attempts.0.proof.script"),
    ("attempts.0.proof.script", None, "attempts.0.proof.script"),
    ("attempts.0.proof.max_error", 9.0, "attempts.0.proof.ok"),
    ("attempts.0.proof.gflops", 1e12, "attempts.0.proof.gflops"),
    ("attempts.0.proof.failure", "bad luck", "attempts.0.proof.failure"),
    ("attempts.0.proof.mlir", "gcc\n", "attempts.0.proof.mlir"),
]  # fmt: skip


@pytest.mark.full
def test_an_end_that_is_none_of_the_job_is_refused(worker, sessions, job):
    worker.post("trials", worker.trial())
    for path, value, field in ENDS:
        answer = worker.post("done", changed(worker.end(), path, value))
        assert field in fields(answer), (path, value)
        with reading(sessions) as session:
            assert not session.query(models.Schedule).count(), (path, value)
        assert job(worker.job_id).state == "running", (path, value)
    assert worker.post("done", worker.end()).json() == {"ended": True}, "the job is not harmed"


def test_a_best_schedule_has_been_timed(worker):
    assert "best.steps" in fields(worker.post("done", worker.end())), "no trial is stored"


def test_a_changed_body_of_a_script_is_refused_line_by_line(worker):
    worker.post("trials", worker.trial())
    text = worker.end()["attempts"][0]["proof"]["script"]
    for wrong in (text.replace("16", "17", 1), text + "// more\n", text.replace("// ", "", 1)):
        answer = worker.post("done", changed(worker.end(), "attempts.0.proof.script", wrong))
        assert wrong != text and "attempts.0.proof.script" in fields(answer)


def test_the_stored_script_is_made_here_and_names_who_has_proven_it(worker, sessions, client):
    worker.post("trials", worker.trial())
    text = worker.end()["attempts"][0]["proof"]["script"]
    forged = text.replace(HEADER_END, f"// error:    0, trust me\n{HEADER_END}", 1)
    body = changed(worker.end(), "attempts.0.proof.script", forged)
    assert worker.post("done", body).json() == {"ended": True}
    with reading(sessions) as session:
        script = find_script(session, worker.problem, Lookup(worker.offer.target, TOOLCHAIN))
    assert script.text.endswith(text.partition(HEADER_END)[2]) and "trust me" not in script.text
    assert prover_of(script.text) == "worker-host" and prover_of(text) is None
    query = {"problem": PROBLEM, "target": worker.offer.target}
    found = client.get("/v1/schedules", params=query).json()
    assert found["proof"]["by"] == "worker-host"


def test_a_registered_machine_keeps_its_facts_and_its_name(sessions, employ):
    made = employ()
    with writing(sessions) as session:
        entry = WorkerEntry(OWNER, made.machine, made.machine.targets, TOOLCHAIN, 1)
        registry.show(session, entry)
    assert fields(made.begin("elsewhere:8:8")) == {"owner"}
    assert fields(made.begin("no process")) == {"owner"}
    assert made.begin().status_code == 200
    made.post("trials", made.trial())
    body = changed(made.end(), "machine.memory_bytes", 1)
    assert made.post("done", body).json() == {"ended": True}
    with reading(sessions) as session:
        row = session.query(models.Machine).filter_by(host="worker-host").one()
        assert row.memory_bytes == made.machine.memory_bytes


def test_candidates_and_answers_are_compared_with_the_job(employ):
    made = employ(spread=4)
    made.begin()
    made.post("trials", made.trial())

    def offered(*candidates):
        body = {"epoch": 1, "start": 0, "offered": list(candidates), "back": [], "late_s": 60.0}
        return made.post("candidates", body)

    def candidate(number, **changes):
        said = {"number": number, "params": {}, "origin": "tpe", "best_s": 1e-3, "control": None}
        return said | {"steps": fakes.schedule(number).to_json()} | changes

    assert fields(offered(candidate(1, steps=ILLEGAL))) == {"offered.0.steps"}
    control = {"steps": ILLEGAL, "seconds": 1.0}
    assert fields(offered(candidate(1, control=control))) == {"offered.0.control.steps"}
    assert fields(offered(*map(candidate, range(1, BUDGET + 1)))) == {"offered"}
    most = [candidate(number) for number in range(1, BUDGET)]
    assert offered(*most).status_code == 200
    assert offered(*most).status_code == 200, "sent again"
    assert fields(offered(candidate(BUDGET))) == {"offered"}
    assert fields(made.post("trials", made.trial(1))) == {"trial.number"}, "helpers have the rest"


@pytest.mark.parametrize(
    ("cpu", "dtype", "threads", "reached"),
    [("emeraldrapids", "f32", 1, 177.0), ("emeraldrapids", "f32", 2, 354.0),
     ("emeraldrapids", "i8", 1, 4610.0), ("znver4", "f64", 1, 90.0),
     ("neoverse-v2", "f32", 1, 110.0), ("skylake", "i32", 4, 200.0)],
)  # fmt: skip
def test_what_processors_reach_is_possible(cpu, dtype, threads, reached):
    problem = parse_problem(f"matmul:m=64,n=48,k=32,dtype={dtype}")
    work = JobWork(problem, TargetName(cpu, threads), 1, False, TOOLCHAIN)
    assert reached < work.most_gflops(fakes.schedule()) < 8 * reached
