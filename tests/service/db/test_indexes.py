"""What is asked of very many rows is found through an index: SQLite says how it would look.

The plans do not depend on how many rows there are, for SQLite keeps no statistics of these tables.
"""

import re

import pytest

from kernels.problem import parse_problem
from service.api import documents
from service.db import reading
from service.db.base import Base
from service.jobs import queue
from service.jobs.trial_store import SqlTrialStore
from service.results import integrity, schedules, scripts, trials
from tests.service import statements
from tests.service.conftest import PROBLEM, TOOLCHAIN

WANTED = parse_problem(PROBLEM)
OTHER = parse_problem("matmul:m=8,n=8,k=8,dtype=f32")
TABLES = set(Base.metadata.tables)

ASKED = {
    "a page of trials": (
        lambda s, _: trials.find_trials(s, after=3, limit=2), "jobs_1 USING INDEX ix_jobs_work"),
    "a problem's trials": (
        lambda s, _: trials.find_trials(s, problem=WANTED, after=3, limit=2),
        "jobs USING INDEX ix_jobs_work"),
    "a script": (
        lambda s, on: scripts.served_script(s, WANTED, on, "cpu", TOOLCHAIN),
        "script_proofs USING INDEX ix_script_proofs_schedule_id"),
    "a fresh schedule": (
        lambda s, on: schedules.find_fresh(s, WANTED, on, TOOLCHAIN),
        "schedules USING INDEX sqlite_autoindex_schedules"),
    "a schedule": (
        lambda s, on: schedules.find_schedule(s, WANTED, on, TOOLCHAIN),
        "schedules USING INDEX sqlite_autoindex_schedules"),
    "a look-up": (
        lambda s, on: documents.results_json(
            s, list(schedules.find_schedules(s, [WANTED.key, OTHER.key], on, TOOLCHAIN).values())),
        "trials USING COVERING INDEX ix_trials_ended"),
    "all proofs": (
        lambda s, on: integrity.tampered_proofs(s, schedules.find_fresh(s, WANTED, on, TOOLCHAIN)),
        "script_proofs USING INDEX ix_script_proofs_schedule_id"),
    "the state of a job": (
        lambda s, _: documents.job_json(s, queue.get(s, 1)),
        "trials USING COVERING INDEX ix_trials_ended (job_id=?)"),
    "the best trial": (
        lambda s, _: queue.best_trial(s, 1),
        "trials USING INDEX ix_trials_ended (job_id=? AND state=?)"),
    "jobs in a state": (
        lambda s, _: queue.list_jobs(s, state="done", before=9, limit=2),
        "jobs USING INDEX ix_jobs_state_id (state=? AND id<?)"),
}  # fmt: skip


@pytest.mark.parametrize("name", ASKED)
def test_no_table_is_read_from_end_to_end(url, sessions, machine, tuned, name):
    ask, step = ASKED[name]
    with reading(sessions) as session, statements.noted() as asked:
        ask(session, machine.target)
    assert_indexed(url, asked, step)


@pytest.mark.parametrize(
    ("ask", "step"),
    [
        (SqlTrialStore.known_failures, "trials USING INDEX ix_trials_ended (job_id=? AND state=?)"),
        (SqlTrialStore.known_failures, "jobs USING COVERING INDEX ix_jobs_work"),
        (SqlTrialStore.trials, "trials USING INDEX sqlite_autoindex_trials"),
    ],
)
def test_a_search_reads_no_table_from_end_to_end(url, sessions, tuned, ask, step):
    with statements.noted() as asked:
        ask(SqlTrialStore(sessions, tuned))
    assert_indexed(url, asked, step)


def test_a_search_counts_the_trials_of_others_in_an_index(url, sessions, tuned):
    """It walks through the newest jobs, for as many as it wants, but never through their trials."""
    with statements.noted() as asked:
        SqlTrialStore(sessions, tuned).earlier("matmul")
    steps = [step for one in asked for step in statements.plan(url, *one)]
    assert "SEARCH trials USING COVERING INDEX ix_trials_ended (job_id=?)" in steps
    assert not [step for step in steps if step.startswith("SCAN trials")]


def test_jobs_are_listed_without_being_sorted(url, sessions, tuned):
    for state in (None, "done"):
        with reading(sessions) as session, statements.noted() as asked:
            queue.list_jobs(session, state=state, limit=2)
        (one,) = asked
        assert not [step for step in statements.plan(url, *one) if "TEMP B-TREE" in step]


def assert_indexed(url, asked, step):
    """No statement reads a whole table, and one of them takes `step`."""
    steps = [found for one in asked for found in statements.plan(url, *one)]
    assert any(step in found for found in steps), "\n".join(steps)
    for found in steps:
        scanned = re.match(r"SCAN (\w+?)(_\d+)?( |$)", found)
        assert not (scanned and scanned[1] in TABLES), "\n".join(steps)
