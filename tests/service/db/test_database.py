import os
import sqlite3
import tempfile
import threading
from pathlib import Path
from unittest.mock import Mock

import pytest
from fastapi.testclient import TestClient
from sqlalchemy.exc import DBAPIError

from tests.service.conftest import TOOLCHAIN, settings_for
from tilewise.kernels.system.files import cache_dir
from tilewise.service.app import create_app
from tilewise.service.db import make_engine, make_sessions, models, reading, schema, writing
from tilewise.service.db.driver_errors import translate
from tilewise.service.default_database import default_database
from tilewise.service.errors import BusyError, DatabaseError, OutageError, UndoneError
from tilewise.service.settings import Settings


def file_of(url):
    return Path(url.removeprefix("sqlite:///"))


def execute(url, statement):
    with sqlite3.connect(file_of(url)) as connection:
        return connection.execute(statement).fetchall()


@pytest.mark.parametrize(
    ("name", "is_there", "message"),
    [("new/folder/tilewise.db", False, "does not exist"), ("empty.db", True, "has no schema yet")],
)
def test_an_absent_or_empty_database_is_made_ready(tmp_path, name, is_there, message):
    url = f"sqlite:///{tmp_path / name}"
    if is_there:
        file_of(url).touch()
    with pytest.raises(DatabaseError, match=f"{message}; run `tilewise db upgrade`"):
        schema.check(make_engine(url))
    assert file_of(url).exists() == is_there, "a check must not make the file"
    schema.prepare(url)
    schema.check(make_engine(url))


def test_a_newer_database_is_left_alone_and_starts_no_service(url, machine):
    execute(url, "UPDATE alembic_version SET version_num = '9999'")
    for refuse in (schema.upgrade, schema.prepare):
        with pytest.raises(DatabaseError, match="schema version 9999, which this tilewise"):
            refuse(url)
    app = create_app(settings_for(url), 0, machine=machine, toolchain=TOOLCHAIN)
    with pytest.raises(DatabaseError, match="9999"), TestClient(app):
        pass


def test_an_older_database_is_not_upgraded_behind_ones_back(url, monkeypatch):
    present = schema.HEAD
    monkeypatch.setattr(schema, "HEAD", "9998")
    with pytest.raises(DatabaseError, match=f"schema version {present}, this tilewise needs 9998"):
        schema.prepare(url)


def test_tables_of_something_else_are_left_alone(tmp_path):
    url = f"sqlite:///{tmp_path / 'other.db'}"
    execute(url, "CREATE TABLE cats (name TEXT)")
    before = file_of(url).read_bytes()
    for refuse in (schema.upgrade, schema.prepare):
        with pytest.raises(DatabaseError, match="contains tables of another program; point"):
            refuse(url)
    assert execute(url, "SELECT name FROM sqlite_master") == [("cats",)]
    assert len(before) == file_of(url).stat().st_size


def test_a_file_that_is_no_database_says_so(tmp_path):
    url = f"sqlite:///{tmp_path / 'notes.txt'}"
    file_of(url).write_text("not a database, but long enough to look at" * 50)
    with pytest.raises(DatabaseError, match="is not an SQLite file; point TILEWISE_DB"):
        schema.prepare(url)


def test_a_read_only_database_is_not_upgraded(tmp_path):
    file = tmp_path / "empty.db"
    file.touch()
    with pytest.raises(DatabaseError, match="is read-only; make the file and its folder writable"):
        schema.upgrade(f"sqlite:///file:{file}?mode=ro&uri=true")


def test_a_full_disk_costs_one_transaction_which_may_be_repeated(sessions):
    """`max_page_count` is an end of the disk that SQLite itself knows of."""
    row = {"identity": "x" * 200_000}
    with sessions.kw["bind"].connect() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count = 1")  # it takes no less than there is
    full = pytest.raises(OutageError, match="is on a full disk; free some space")
    with full, writing(sessions) as session:
        session.add(models.Toolchain(**row))
    with reading(sessions) as session:
        assert session.query(models.Toolchain).count() == 0
        session.connection().exec_driver_sql("PRAGMA max_page_count = 4294967294")
    with writing(sessions) as session:
        session.add(models.Toolchain(**row))
    with reading(sessions) as session:
        assert session.connection().exec_driver_sql("PRAGMA integrity_check").scalar() == "ok"
        assert session.query(models.Toolchain).count() == 1


def test_a_writer_waits_for_another_for_a_while(url, sessions):
    """What a transaction has read is still true when it writes."""
    engine = make_engine(url, patience_s=0.05)
    impatient = make_sessions(engine)
    with writing(sessions) as session:
        before = session.query(models.Toolchain).count()
        with pytest.raises(BusyError, match="locked by another process"), writing(impatient):
            pass
        session.add(models.Toolchain(identity=str(before)))
    busy = pytest.raises(BusyError, match="another process holds the write lock")
    with writing(impatient) as session, busy, writing(impatient):
        pass
    with writing(impatient) as session:
        assert session.query(models.Toolchain).one().identity == "0"
    engine.dispose()


def test_the_default_database_is_in_the_users_data_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("TILEWISE_DB", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert Settings().db == default_database() == f"sqlite:///{tmp_path}/tilewise/tilewise.db"
    monkeypatch.setenv("TILEWISE_DB", "sqlite:///elsewhere.db")
    assert Settings().db == "sqlite:///elsewhere.db"


def test_a_first_connection_waits_for_a_lock_instead_of_failing(tmp_path):
    """The switch to the write-ahead log gets no busy timeout from SQLite."""
    file = tmp_path / "locked.db"
    holder = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    holder.execute("CREATE TABLE a (b)")
    holder.execute("BEGIN IMMEDIATE")
    release = threading.Timer(0.3, lambda: holder.execute("COMMIT"))
    release.start()
    engine = make_engine(f"sqlite:///{file}")
    with engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
    release.join()
    engine.dispose()


@pytest.mark.parametrize(
    ("state", "kind"),
    [("53300", BusyError), ("40P01", UndoneError), ("40001", UndoneError), ("25006", OutageError),
     ("53100", OutageError), ("08006", OutageError), ("42P01", DatabaseError)],
)  # fmt: skip
def test_what_a_server_says_is_busy_an_outage_or_for_good(state, kind):
    refused = OSError("refused")
    refused.sqlstate = state
    error = translate(DBAPIError("SELECT 1", {}, refused), "postgresql://host/name")
    assert type(error) is kind


@pytest.mark.parametrize(("url", "message"), [
    ("", "is not a database URL"), ("/tmp/file.db", "is not a database URL"),
    ("postgresql://user:secret@host:port/x", "is not a database URL"),
    ("postgresql://user:a/secret@host@other:port/x", "is not a database URL"),
    ("postgresql://host:65536/x", "port=65536 is out of range; give 1 to 65535"),
    ("postgresql://user:secret@host/%00", "cannot hold the character NUL"),
    ("postgresql+asyncpg://host/x", "postgresql+asyncpg is not supported"),
    ("postgresql+nosuch://host/x", "is not supported"),
    ("mysql://host/x", "mysql is not supported"), ("sqlite://host/x.db", "Invalid SQLite URL"),
    ("sqlite:///x%00.db", "cannot hold the character NUL"),
    ("sqlite:///\udcff.db", "is not a database URL"),
    ("sqlite:///x.db?timeout=long", "could not convert"),
    ("sqlite:///x.db?mode=ro", "SQLite would ignore mode; write sqlite:///file:FILE?uri=true"),
    ("sqlite:///file::memory:?uri=true", "cannot see an in-memory database"),
    ("sqlite:///file:x?mode=odd&uri=true", "no such access mode"),
    ("sqlite:///" + "x" * 5000, "File name too long"),
], ids=lambda text: ascii(text)[:40])  # fmt: skip
def test_a_url_that_makes_no_sense_is_refused_without_its_password(url, message):
    is_opened_for_this = "access mode" in message
    for ask in (schema.prepare,) if is_opened_for_this else (schema.is_absent, schema.prepare):
        with pytest.raises(DatabaseError) as caught:
            ask(url)
        assert message in str(caught.value)
        assert "secret" not in str(caught.value) and "Traceback" not in str(caught.value)


def test_a_file_that_cannot_be_opened_is_not_waited_for(tmp_path):
    folder = tmp_path / "results.db"
    folder.mkdir()
    with pytest.raises(OutageError, match="cannot be opened"):
        schema.prepare_once_there(f"sqlite:///{folder}", threading.Event())


def test_a_signal_during_an_upgrade_ends_the_start(tmp_path, monkeypatch):
    stopping = threading.Event()
    monkeypatch.setattr(schema, "prepare", lambda _: stopping.set())
    assert not schema.prepare_once_there(f"sqlite:///{tmp_path / 'results.db'}", stopping)


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch):
    monkeypatch.setattr(Path, "home", Mock(side_effect=RuntimeError("no home directory")))
    for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME", "TILEWISE_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(DatabaseError, match="no home folder; set TILEWISE_DB"):
        default_database()
    cache = cache_dir()
    assert cache.parent == Path(tempfile.gettempdir()) and cache.name.startswith("tilewise-")
    assert cache.stat().st_uid == os.getuid() and not cache.stat().st_mode & 0o022
