"""docs/sql-views.md has the columns of the views; queries of docs/sql.md run on both databases.

The right answers are worked out here in Python, from the rows of the tables.
"""

import re
import sqlite3
from collections import Counter
from datetime import timedelta
from pathlib import Path
from statistics import mean

import pytest
from sqlalchemy import select

from tilewise.service.db import make_engine, models, reading
from tilewise.service.db.base import now
from tilewise.service.db.session import make_sessions
from tilewise.service.db.views import VIEWS, reference

DOCS = Path(__file__).parents[3] / "docs"
PAGE, COLUMNS = DOCS / "sql.md", DOCS / "sql-views.md"
BEGIN, END = "<!-- columns: begin, from service/db/views.py -->\n", "<!-- columns: end -->"
COOKBOOK = dict(re.findall(r"### (.*?)\n\n```sql\n(.*?);\n```", PAGE.read_text(), re.DOTALL))
PROBLEM = "matmul:m=4,n=64,k=64,dtype=bf16"


def test_the_page_describes_the_columns(request):
    text = COLUMNS.read_text()
    head, rest = text.split(BEGIN)
    told, tail = rest.split(END)
    if request.config.getoption("--update-golden"):
        COLUMNS.write_text(head + BEGIN + reference() + END + tail)
        told = reference()
    assert told == reference(), "if this change is meant, run with --update-golden"


def test_the_page_names_every_view():
    for view in VIEWS:
        assert f"| `{view.name}` |" in PAGE.read_text()


class Rows:
    """The tables, joined in Python."""

    def __init__(self, session):
        everything = {
            model: {row.id: row for row in session.scalars(select(model))}
            for model in (models.Schedule, models.Job, models.Trial, models.Proof, models.Machine)
        }
        self.schedules, self.jobs, self.trials, self.proofs, self.machines = (
            list(rows.values()) for rows in everything.values()
        )
        self.job = everything[models.Job]
        self.schedule = everything[models.Schedule]
        self.now = now()

    def current(self):
        newest = {}
        for row in sorted(self.schedules, key=lambda row: row.created_at):
            newest[row.problem_id, row.target, row.cache] = row
        return list(newest.values())

    def own_trials(self):
        return [t for t in self.trials if t.created_at >= self.job[t.job_id].created_at]


def best(rows):
    return [
        (s.target, s.toolchain.identity, s.gflops)
        for s in rows.current()
        if s.problem.canonical == PROBLEM
    ]


def furthest(rows):
    return sorted(s.gflops / s.peak_gflops for s in rows.current())[:20]


def slower(rows):
    found = []
    for s in rows.current():
        name, peer = max(
            ((name, p["gflops"]) for name, p in (s.peers or {}).items()),
            key=lambda one: one[1],
            default=(None, 0.0),
        )
        if s.gflops < peer:
            found.append((s.problem.canonical, name))
    return sorted(found)


def failed(rows):
    week = rows.now - timedelta(days=7)
    found = Counter(
        ("trial", t.failure)
        for t in rows.own_trials()
        if t.state == "failed" and t.created_at > week
    )
    ended = [job for job in rows.jobs if job.state == "failed" and job.finished_at > week]
    found.update(("job", "crash" if job.crashes == 3 else "error") for job in ended)
    found.update(("proof", p.failure) for p in rows.proofs if not p.ok and p.created_at > week)
    return dict(found)


def waiting(rows):
    queued = [job for job in rows.jobs if job.state == "queued"]
    return [job.id for job in sorted(queued, key=lambda job: job.created_at)][:20]


def over_toolchains(rows):
    found = [s for s in rows.schedules if s.problem.canonical == PROBLEM]
    return [(s.toolchain.identity, s.gflops) for s in sorted(found, key=lambda s: s.toolchain_id)]


def an_hour(rows):
    lately = [t for t in rows.own_trials() if rows.now - t.created_at < timedelta(days=1)]
    return Counter((rows.job[t.job_id].host, f"{t.created_at:%Y-%m-%d %H}:00") for t in lately)


def winners(rows):
    first = {(t.job_id, t.hash): t for t in sorted(rows.trials, key=lambda t: -t.number)}
    won = [first[s.job_id, s.hash] for s in rows.schedules]
    by = {
        origin: [t.number for t in won if t.origin == origin] for origin in {t.origin for t in won}
    }
    return {origin: (len(numbers), pytest.approx(mean(numbers))) for origin, numbers in by.items()}


def regressions(rows):
    of = {(s.problem_id, s.target, s.cache, s.toolchain_id): s for s in rows.schedules}
    found = []
    for (*work, toolchain), before in of.items():
        after = of.get((*work, 2))
        if toolchain == 1 and after is not None and after.high < before.low:
            found.append((after.gflops / before.gflops, after.problem.canonical))
    return [problem for _, problem in sorted(found)]


def unproven(rows):
    latest = sorted((p for p in rows.proofs if not p.ok), key=lambda p: p.created_at, reverse=True)
    return [rows.schedule[p.schedule_id].problem.canonical for p in latest[:20]]


RIGHT = {
    "What is the best schedule of a problem?": (
        best, lambda found: [(r["target"], r["toolchain"], r["gflops"]) for r in found]),
    "Which problems are furthest from the peak of their machine?": (
        furthest, lambda found: [r["peak_fraction"] for r in found]),
    "Which problems does another library compute faster?": (
        slower, lambda found: sorted((r["problem"], r["best_peer"]) for r in found)),
    "What failed this week, and why?": (
        failed, lambda found: {(r["source"], r["class"]): r["failures"] for r in found}),
    "Which jobs wait longest?": (waiting, lambda found: [r["job"] for r in found]),
    "How fast was a problem with each toolchain?": (
        over_toolchains, lambda found: [(r["toolchain"], r["gflops"]) for r in found]),
    "How many trials does each machine time an hour?": (
        an_hour, lambda found: {(r["host"], r["hour"]): r["trials"] for r in found}),
    "Who proposed the schedules that won?": (
        winners,
        lambda found: {r["origin"]: (r["winners"], float(r["mean_trial"])) for r in found}),
    "What became slower from one toolchain to another?": (
        regressions, lambda found: [r["problem"] for r in found]),
    "Which scripts did not prove, and why?": (
        unproven, lambda found: [r["problem"] for r in found]),
}  # fmt: skip


def test_there_are_ten_questions():
    assert list(COOKBOOK) == list(RIGHT) and len(COOKBOOK) == 10


@pytest.mark.parametrize("question", RIGHT)
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_the_cookbook_answers_right(populated, database, question):
    engine = make_engine(populated[database])
    with engine.connect() as connection:
        found = [dict(r) for r in connection.exec_driver_sql(COOKBOOK[question]).mappings()]
    right, shown = RIGHT[question]
    with reading(make_sessions(engine)) as session:
        wanted = right(Rows(session))
    engine.dispose()
    assert found and shown(found) == wanted


def test_the_file_is_opened_read_only_as_the_page_says(populated):
    assert "?mode=ro'" in PAGE.read_text()
    file = populated["sqlite"].removeprefix("sqlite:///")
    with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as connection:
        assert connection.execute("SELECT problem FROM best_schedules").fetchall()
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            connection.execute("UPDATE jobs SET state = 'failed'")
