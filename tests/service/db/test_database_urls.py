import os
import tempfile
from pathlib import Path

import pytest

from tilewise.kernels.system.files import cache_dir
from tilewise.service.db import schema
from tilewise.service.db.session import make_engine
from tilewise.service.default_database import default_database
from tilewise.service.errors import DatabaseError


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "is not a database URL"),
        ("/tmp/file.db", "is not a database URL"),
        ("postgresql://host:port/x", "is not a database URL"),
        ("postgresql://host:65536/x", "port=65536 is out of range; give 1 to 65535"),
        ("postgresql://host/%00", "cannot hold the character NUL"),
        ("postgresql+asyncpg://host/x", "postgresql+asyncpg is not supported"),
        ("postgresql+nosuch://host/x", "is not supported"),
        ("mysql://host/x", "mysql is not supported"),
        ("sqlite://host/x.db", "Invalid SQLite URL"),
        ("sqlite:///x%00.db", "cannot hold the character NUL"),
        ("sqlite:///\udcff.db", "is not a database URL"),
        ("sqlite:///x.db?timeout=long", "could not convert"),
        ("sqlite:///x.db?mode=ro", "SQLite would ignore mode; write sqlite:///file:FILE?uri=true"),
        ("sqlite:///file::memory:?uri=true", "cannot see an in-memory database"),
        ("sqlite:///file:x?mode=odd&uri=true", "no such access mode"),
        ("sqlite:///" + "x" * 5000, "File name too long"),
    ],
    ids=lambda text: ascii(text)[:40],
)
def test_a_url_that_makes_no_sense_is_refused(url, message):
    for ask in (schema.is_absent, schema.prepare):
        if ask is schema.is_absent and "access mode" in message:
            continue  # it is opened for this
        with pytest.raises(DatabaseError) as caught:
            ask(url)
        assert message in str(caught.value)
        assert "Traceback" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:secret@host:port/x",
        "postgresql://user:secret@host/%00",
        "postgresql://user:a/secret@host@other:port/x",
    ],
)
def test_no_refusal_shows_the_password(url):
    with pytest.raises(DatabaseError) as caught:
        make_engine(url)
    assert "secret" not in str(caught.value)


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    with pytest.raises(DatabaseError, match="no home folder; set TILEWISE_DB"):
        default_database()
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("TILEWISE_CACHE_DIR", raising=False)
    cache = cache_dir()
    assert cache.parent == Path(tempfile.gettempdir()) and cache.name.startswith("tilewise-")
    assert cache.stat().st_uid == os.getuid() and not cache.stat().st_mode & 0o022
