import re
import sqlite3
from pathlib import Path

import pytest

from tests.service.db.described_views import VIEWS
from tilewise.service.db import make_engine

DOCS = Path(__file__).parents[3] / "docs"
PAGE = DOCS / "sql.md"
COOKBOOK = dict(re.findall(r"### (.*?)\n\n```sql\n(.*?);\n```", PAGE.read_text(), re.DOTALL))
DIFFERENT = {"steps", "created_at", "waited_s"}  # in form, or from moment to moment


def test_the_page_names_every_view():
    for view in VIEWS:
        assert f"| `{view.name}` |" in PAGE.read_text()


def test_there_are_ten_questions():
    assert len(COOKBOOK) == 10


def comparable(value):
    return value if isinstance(value, str) else round(float(value), 9)


@pytest.mark.parametrize("question", COOKBOOK)
def test_the_cookbook_answers_alike_on_both_databases(populated, question):
    answers = []
    for url in populated.values():
        engine = make_engine(url)
        with engine.connect() as connection:
            rows = connection.exec_driver_sql(COOKBOOK[question]).mappings().all()
        engine.dispose()
        names = [name for name in rows[0] if name not in DIFFERENT]
        answers.append([[comparable(row[name]) for name in names] for row in rows])
    assert answers[0] == answers[1]


def test_the_file_is_opened_read_only_as_the_page_says(populated):
    assert "?mode=ro'" in PAGE.read_text()
    file = populated["sqlite"].removeprefix("sqlite:///")
    with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as connection:
        assert connection.execute("SELECT problem FROM best_schedules").fetchall()
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            connection.execute("UPDATE jobs SET state = 'failed'")
