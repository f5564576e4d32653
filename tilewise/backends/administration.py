"""The service and its database on this machine, for those who run them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import timedelta

from pydantic import ValidationError

from tilewise.backends.base import Json
from tilewise.backends.service_errors import database_of, settings, told
from tilewise.errors import BadInputError
from tilewise.service.api.documents import moment, token_json
from tilewise.service.api.requests import TokenRequest
from tilewise.service.db import schema
from tilewise.service.db import tokens as token_store
from tilewise.service.db.base import now
from tilewise.service.db.session import Sessions, make_engine, make_sessions, reading, writing
from tilewise.service.jobs import retention


def serve(host: str, port: int, workers: int, database_url: str | None) -> None:
    """Serve until interrupted."""
    from tilewise.service.server import serve as run

    with told():
        run(host, port, workers, settings(database_url))


def database(action: str, database_url: str | None) -> Json:
    """Upgrade or check; BadInputError when the database is not as it must be."""
    with told():
        url = database_of(database_url)
        if action == "upgrade":
            schema.upgrade(url)
        engine = make_engine(url)
        try:
            schema.check(engine)
        finally:
            engine.dispose()
        return {"database": engine.url.render_as_string(), "schema": schema.HEAD}


def prune(days: float, keep: int, database_url: str | None, *, dry_run: bool, vacuum: bool) -> Json:
    """Thin the samples of old trials; what was, or would be, done."""
    with opened_sessions(database_url) as sessions:
        found = retention.prune(sessions, timedelta(days=days), keep, dry_run=dry_run)
        if vacuum and not dry_run:
            retention.give_back(sessions.kw["bind"])
    return {"dry_run": dry_run, **asdict(found)}


def create_token(name: str, scope: str, days: float | None, database_url: str | None) -> Json:
    """A new token, as `POST /v1/tokens` gives it."""
    try:
        asked = TokenRequest.model_validate({"name": name, "scope": scope, "days": days})
    except ValidationError as error:
        first = error.errors()[0]
        raise BadInputError(f"{first['loc'][0]}={first['input']!r}: {first['msg']}") from error
    expires = None if asked.days is None else now() + timedelta(days=asked.days)
    with opened_sessions(database_url) as sessions, writing(sessions) as session:
        made = token_store.create(session, asked.name, asked.scope, expires)
    shown = None if expires is None else moment(expires)
    return {"name": asked.name, "scope": asked.scope, "expires": shown, "token": made}


def tokens(database_url: str | None) -> Json:
    """All tokens, as `GET /v1/tokens` gives them."""
    with opened_sessions(database_url) as sessions, reading(sessions) as session:
        return {"tokens": [token_json(row) for row in token_store.every(session)]}


def revoke_token(name: str, database_url: str | None) -> Json:
    """A token that is worth nothing any more."""
    with opened_sessions(database_url) as sessions, writing(sessions) as session:
        return token_json(token_store.revoke(session, name))


@contextmanager
def opened_sessions(database_url: str | None) -> Iterator[Sessions]:
    """Sessions on this machine's database, which is made where it is absent."""
    with told():
        url = database_of(database_url)
        schema.prepare(url)
        engine = make_engine(url)
        try:
            yield make_sessions(engine)
        finally:
            engine.dispose()
