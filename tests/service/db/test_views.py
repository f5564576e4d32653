import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import create_engine, inspect, text

from tests.service.db.described_views import VIEWS, View
from tilewise.kernels.problem import DTYPES
from tilewise.migrations.views import v0009, v0022
from tilewise.service.db import make_engine, schema
from tilewise.service.db.session import write_connection
from tilewise.service.jobs import registry
from tilewise.service.jobs.lease import MOST_CRASHES

NOW_OF = {"age_s", "seen_age_s", "heartbeat_age_s", "elapsed_s", "waited_s"}  # may pass meanwhile
SQLITE = {"text": str, "integer": int, "number": float, "boolean": int, "moment": str}
POSTGRESQL = {
    "text": "text", "character varying": "text", "integer": "integer", "bigint": "integer",
    "double precision": "number", "boolean": "boolean", "timestamp with time zone": "moment",
}  # fmt: skip
ODDITIES = """
UPDATE jobs SET cache = 'cold' WHERE id = 3;
UPDATE schedules SET cache = 'cold', peers = NULL WHERE job_id = 3;
UPDATE schedules SET peak_gflops = 0 WHERE job_id = 4;
UPDATE schedules SET peers = '{}' WHERE id = 1;
UPDATE schedules SET peers = '[]' WHERE id = 2;
UPDATE schedules SET peers = '{"a": 1, "b": {"gflops": "x"}, "c": {"gflops": 7}}' WHERE id = 5;
UPDATE machines SET peaks = NULL, peaks_at = NULL WHERE id = 1;
UPDATE machines SET peaks = '{"f32": "x", "f64": 3}' WHERE id = 2;
UPDATE trials SET max_error = 1e308 * 10 WHERE number = 1 AND job_id < 9;
UPDATE jobs SET state = 'cancelled', complete = NULL WHERE id = 5;
UPDATE problems SET canonical = 'matmul:n=64' WHERE id = 7;
UPDATE tuned_ranges SET result = '{"variants": 2, "spans": [[[1, 2], [3, 4], 0]]}' WHERE id = 2;
INSERT INTO script_proofs
  (id, schedule_id, ok, applied, executed, mlir, failure, message, created_at)
  VALUES (1000, 1, false, false, false, '', 'prover', 'it died', '2026-01-31 12:00:00.000001+00');
UPDATE trials SET created_at = '2026-01-31 12:59:59.999653+00' WHERE number = 2;
INSERT INTO scripts (id, schedule_id, flavor, hash, steps, text, sha256, created_at)
  SELECT id + 1000, 2, CASE WHEN id = 1 THEN 'air' ELSE 'cpu' END, hash, steps, text, sha256,
    created_at FROM scripts WHERE id < 4;
INSERT INTO script_proofs
  (id, schedule_id, script_id, ok, applied, executed, mlir, message, gflops, created_at)
  SELECT id + 1000, 2, id + 1000, true, true, true, mlir, '', CASE WHEN id = 2 THEN 1.0 END,
    created_at FROM script_proofs WHERE id < 4;
INSERT INTO past_schedules
  (id, problem_id, toolchain_id, machine_id, job_id, target, cache, hash, steps, gflops, low, high,
   time_us, peak_gflops, budget, elapsed_s, complete, digest, created_at, was_best, ended_at)
  SELECT id, problem_id, toolchain_id, machine_id, job_id, target, cache, hash, steps, gflops,
    low * id / 4, high, time_us, peak_gflops, budget, elapsed_s, complete, digest, created_at,
    id < 3, created_at FROM schedules WHERE id < 5;
UPDATE past_schedules SET measured = '[]' WHERE id = 3;
UPDATE past_schedules SET measured = '{"samples": 3}' WHERE id = 4;
"""


@pytest.fixture(scope="module")
def engines(populated):
    made = {name: make_engine(url) for name, url in populated.items()}
    yield made
    for engine in made.values():
        engine.dispose()


def rows_of(engine, view: View):
    with engine.connect() as connection:
        found = connection.execute(text(f"SELECT * FROM {view.name}"))
        assert list(found.keys()) == [column.name for column in view.columns]
        rows = [{name: plain(row[name]) for name in row} for row in found.mappings()]
    return sorted(rows, key=identity)


def plain(value):
    is_moment = isinstance(value, datetime)
    return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f") if is_moment else value


def identity(row):
    named = ("report", "source", "host", "job", "number", "trial", "proof", "problem", "toolchain",
             "hash")  # fmt: skip
    return [str(row.get(name)) for name in named]


@pytest.mark.full
def test_both_databases_show_the_same_of_what_is_odd(engines, new_postgresql, tmp_path):
    from benchmarks.serving.populated import Sizes, populate
    from tilewise.service.db.base import now

    end, urls = now(), [f"sqlite:///{tmp_path / 'odd.db'}", new_postgresql()]
    shown = []
    for url in urls:
        schema.upgrade(url)
        engine = make_engine(url)
        with write_connection(engine) as connection:
            populate(connection, Sizes(problems=20, trials=200), end)
            for statement in ODDITIES.strip().split(";\n"):
                is_sqlite = url.startswith("sqlite")
                old, new = ("+00'", "'") if is_sqlite else ("1e308 * 10", "'Infinity'")
                connection.exec_driver_sql(statement.rstrip(";").replace(old, new))
        shown.append({view.name: rows_of(engine, view) for view in VIEWS})
        engine.dispose()
    for view in VIEWS:
        first, second = (rows[view.name] for rows in shown)
        assert len(first) == len(second) > 0
        for one, other in zip(first, second, strict=True):
            passing = {name: pytest.approx(one[name], abs=60) for name in NOW_OF & one.keys()}
            assert {**one, **passing} == other
    best = {row["job"]: row for row in shown[0]["best_schedules"]}
    assert best[4]["peak_fraction"] is None
    spans = [row["spans"] for row in shown[0]["best_ranges"] if row["variants"] is None]
    assert spans == ["[[[1,2],[3,4],0]]"]
    peers = {row["best_peer"]: row["best_peer_gflops"] for row in best.values()}
    assert peers["c"] == 7.0 and None in peers
    assert None in {row["dtype"] for row in best.values()}
    assert None in {row["max_error"] for row in shown[0]["trial_history"]}
    served = {row["proof"] for row in shown[0]["proofs"] if row["is_served"]}
    assert served & {2, 1001, 1002, 1003} == {2, 1001}, "the fastest of each flavor"
    (lost,) = [row for row in shown[0]["proofs"] if row["proof"] == 1000]
    assert (lost["flavor"], lost["hash"], lost["ok"], lost["is_served"]) == ("cpu", None, 0, 0)
    assert lost["created_unix"] == 1769860800.000001
    past = {row["entry"]: (row["state"], row["quality"]) for row in shown[0]["schedule_history"]}
    assert past == dict.fromkeys((1, 2), ("superseded", "noisy")) | dict.fromkeys(
        (3, 4), ("not_kept", "noisy")
    )
    late = [row for row in shown[0]["trial_history"] if row["number"] == 2]
    assert {row["created_unix"] for row in late} == {1769864399.999653}


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
def test_columns_are_of_the_kinds_that_are_described(engines, view):
    rows = rows_of(engines["sqlite"], view)
    for column in view.columns:
        kinds = {type(row[column.name]) for row in rows} - {type(None)}
        assert kinds <= {SQLITE[column.kind]}, column.name
    query = (
        "SELECT column_name, data_type FROM information_schema.columns "
        f"WHERE table_name = '{view.name}' ORDER BY ordinal_position"
    )
    with engines["postgresql"].connect() as connection:
        kinds = [(name, POSTGRESQL[kind]) for name, kind in connection.exec_driver_sql(query)]
    assert kinds == [(column.name, column.kind) for column in view.columns]


def test_no_column_has_gone_or_changed_its_kind(golden):
    """What the golden file loses, users lose: columns only ever grow."""
    lines = [f"{view.name}.{c.name} {c.kind}" for view in VIEWS for c in view.columns]
    golden("columns_of_views.txt", "\n".join(lines) + "\n")


def test_every_view_and_no_other_is_described(engines):
    for engine in engines.values():
        assert set(inspect(engine).get_view_names()) == {view.name for view in VIEWS}


def test_what_a_migration_has_copied_from_the_code_is_still_so():
    """A change needs a migration that makes the views again."""
    assert registry.LOST_AFTER.total_seconds() == v0009.LIVE_S
    assert MOST_CRASHES == v0009.MOST_CRASHES
    assert set(DTYPES) == set(v0022.DTYPES)


DAMAGE = (
    "schedules SET peers = '{'", "schedules SET peers = x'00'", "schedules SET peers = 5",
    "machines SET peaks = 'x'", "trials SET steps = '['", "trials SET gflops = 'fast'",
    "jobs SET created_at = 'today', started_at = 7", "problems SET canonical = x'ff'",
    "jobs SET trials = 'many'", "tuned_ranges SET result = '{'",
)  # fmt: skip


@pytest.mark.parametrize("edit", DAMAGE)
def test_a_damaged_row_stops_no_other(populated, tmp_path, edit):
    """SQLite keeps any value in any column, and a view reads all rows in one query."""
    file = tmp_path / "damaged.db"
    with create_engine(populated["sqlite"]).connect() as connection:
        connection.exec_driver_sql(f"VACUUM INTO '{file}'")
    engine = make_engine(f"sqlite:///{file}")
    before = {view.name: len(rows_of(engine, view)) for view in VIEWS}
    with write_connection(engine) as connection:
        connection.exec_driver_sql(f"UPDATE {edit} WHERE id = 1")
    assert {view.name: len(rows_of(engine, view)) for view in VIEWS} == before
    engine.dispose()


PAGE = (Path(__file__).parents[3] / "docs" / "sql.md").read_text()
COOKBOOK = dict(re.findall(r"### (.*?)\n\n```sql\n(.*?);\n```", PAGE, re.DOTALL))
DIFFERENT = {"steps", "created_at", "waited_s"}  # in form, or from moment to moment


def test_the_page_names_every_view_and_has_eleven_questions():
    assert not [view.name for view in VIEWS if f"| `{view.name}` |" not in PAGE]
    assert len(COOKBOOK) == 11


def comparable(value):
    return value if isinstance(value, str) else round(float(value), 9)


@pytest.mark.parametrize("question", COOKBOOK)
def test_the_cookbook_answers_alike_on_both_databases(engines, question):
    answers = []
    for engine in engines.values():
        with engine.connect() as connection:
            rows = connection.exec_driver_sql(COOKBOOK[question]).mappings().all()
        names = [name for name in rows[0] if name not in DIFFERENT]
        answers.append([[comparable(row[name]) for name in names] for row in rows])
    assert answers[0] == answers[1]
