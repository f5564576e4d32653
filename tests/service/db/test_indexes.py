"""What is asked of very many rows is found through an index, on both databases.

SQLite's plans do not depend on how many rows there are, for it keeps no statistics of these tables.
PostgreSQL's do: it is asked on a store of thousands of jobs, whose statistics it has.
"""

import re
from dataclasses import replace

import pytest

from benchmarks.serving.populated import TARGET, TOOLCHAINS, problem
from tests.service import statements
from tilewise.search.records import TuneRequest
from tilewise.service.api import documents, files
from tilewise.service.api.events.news import read_news
from tilewise.service.db import make_engine, make_sessions, tokens
from tilewise.service.db.base import Base
from tilewise.service.jobs import claims, lease, queue
from tilewise.service.jobs.lease import Lease
from tilewise.service.jobs.trial_store import SqlTrialStore
from tilewise.service.results import integrity, schedules, scripts, trials
from tilewise.service.results.stored import Lookup

EXACT = Lookup(TARGET, TOOLCHAINS[1])
WANTED, OTHER = problem(1), problem(2)
TABLES = set(Base.metadata.tables)
SMALL = {"machines", "toolchains", "workers", "tokens"}  # as many as there are of these


def page_of_trials(store):
    return store.page(3, 2)


def look_up(session):
    found = schedules.find_schedules(session, [WANTED.key, OTHER.key], EXACT)
    return documents.results_json(session, list(found.values()))


def look_up_files(session):
    nearest = replace(EXACT, match="nearest")
    return files.look_up(session, [WANTED], nearest, ["cpu", "air", "kernel"])


OF_STORE = (SqlTrialStore.known_failures, SqlTrialStore.trials, page_of_trials)
ASKED = [
    (lambda s: trials.find_trials(s, after=3, limit=2), "jobs_1 USING INDEX ix_jobs_work"),
    (lambda s: trials.find_trials(s, problem=WANTED, limit=2), "jobs USING INDEX ix_jobs_work"),
    (lambda s: scripts.served_script(s, WANTED, EXACT),
     "script_proofs USING INDEX ix_script_proofs_schedule_id"),
    (lambda s: schedules.find_fresh(s, WANTED, EXACT),
     "schedules USING INDEX sqlite_autoindex_schedules"),
    (lambda s: schedules.find_schedule(s, WANTED, EXACT),
     "schedules USING INDEX sqlite_autoindex_schedules"),
    (look_up, "trials USING COVERING INDEX ix_trials_ended"),
    (look_up_files, "schedules USING INDEX"),
    (lambda s: integrity.tampered_proofs(s, schedules.find_fresh(s, WANTED, EXACT)),
     "script_proofs USING INDEX ix_script_proofs_schedule_id"),
    (lambda s: documents.job_json(s, queue.get(s, 1)),
     "trials USING COVERING INDEX ix_trials_ended (job_id=?)"),
    (lambda s: queue.best_trial(s, 1), "trials USING INDEX ix_trials_ended (job_id=? AND state=?)"),
    (lambda s: queue.list_jobs(s, state="done", before=9, limit=2),
     "jobs USING INDEX ix_jobs_state_id (state=? AND id<?)"),
    (lambda s: claims.claim(s, "elsewhere:1:1", (TARGET,), EXACT.toolchain),
     "jobs USING INDEX ix_jobs_state (state=? AND target=? AND rowid>?)"),
    (lambda s: queue.create_or_join(s, WANTED, TARGET, TuneRequest(trials=9999), EXACT.toolchain),
     "jobs USING INDEX ix_jobs_work"),
    (lambda s: lease.holds(s, Lease(1, "elsewhere:1:1", 1)), "jobs USING INTEGER PRIMARY KEY"),
    (lambda s: claims.retire(s, (TARGET,), "another"), "jobs USING INDEX ix_jobs_state"),
    (lambda s: read_news(s, ("job", 1), None),
     "trials USING COVERING INDEX sqlite_autoindex_trials"),
    (lambda s: tokens.find(s, "x"), "tokens USING INDEX sqlite_autoindex_tokens"),
    (SqlTrialStore.known_failures, "trials USING INDEX ix_trials_ended (job_id=? AND state=?)"),
    (SqlTrialStore.known_failures, "jobs USING COVERING INDEX ix_jobs_work"),
    (SqlTrialStore.trials, "trials USING INDEX sqlite_autoindex_trials"),
    (page_of_trials, "trials USING INDEX sqlite_autoindex_trials_1 (job_id=? AND number>?)"),
]  # fmt: skip


def asked_of(url, ask):
    """The statements of a question; what it writes is undone."""
    sessions = make_sessions(make_engine(url))
    with statements.noted() as asked:
        if ask in OF_STORE:
            ask(SqlTrialStore(sessions, 1))
        else:
            with sessions(execution_options={"tilewise_writes": True}) as session:
                ask(session)
                session.rollback()
    sessions.kw["bind"].dispose()
    return asked


@pytest.mark.parametrize(("ask", "step"), ASKED)
def test_sqlite_reads_no_table_from_end_to_end(populated, ask, step):
    url = populated["sqlite"]
    steps = [found for one in asked_of(url, ask) for found in statements.plan(url, *one)]
    assert any(step in found for found in steps), "\n".join(steps)
    for found in steps:
        scanned = re.match(r"SCAN (\w+?)(_\d+)?( |$)", found)
        assert not (scanned and scanned[1] in TABLES - SMALL), "\n".join(steps)


def test_jobs_are_listed_without_being_sorted(populated):
    url = populated["sqlite"]
    for state in (None, "done"):
        (one,) = asked_of(url, lambda s, of=state: queue.list_jobs(s, state=of, limit=2))
        assert not [step for step in statements.plan(url, *one) if "TEMP B-TREE" in step]
