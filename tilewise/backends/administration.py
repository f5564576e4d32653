"""Administer the service, its database, tokens and archives on this machine."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pydantic import ValidationError

from tilewise.backends.service_errors import (
    converted_errors,
    database_of,
    opened_sessions,
    settings,
    stored_sessions,
)
from tilewise.errors import BadInputError
from tilewise.kernels.problem import parse_any
from tilewise.kernels.quoting import quoted
from tilewise.kernels.system.toolchain import identity
from tilewise.kernels.target import parse_target
from tilewise.schema.base import Json
from tilewise.service.api.documents import moment, token_json
from tilewise.service.api.requests import TokenRequest
from tilewise.service.archive.builtin import BUILTIN, shipped
from tilewise.service.archive.container import opened
from tilewise.service.archive.export import Selection, export
from tilewise.service.archive.restore import restore
from tilewise.service.db import schema
from tilewise.service.db import tokens as token_store
from tilewise.service.db.base import now
from tilewise.service.db.session import make_engine, reading, writing
from tilewise.service.host.machine import examine_here
from tilewise.service.jobs import retention
from tilewise.version import VERSION

LONGEST_ORIGIN = 100


def serve(host: str, port: int, workers: int, database_url: str | None) -> None:
    """Serve until interrupted."""
    from tilewise.service.server import serve as run

    with converted_errors():
        run(host, port, workers, settings(database_url))


def database(action: str, database_url: str | None) -> Json:
    """Upgrade or check the database; raise BadInputError if it is not as required."""
    with converted_errors():
        url = database_of(database_url)
        if action == "upgrade":
            schema.upgrade(url)
        engine = make_engine(url)
        try:
            schema.check(engine)
        finally:
            engine.dispose()
        return {"database": engine.url.render_as_string(), "schema": schema.HEAD}


def prune(days: float, keep: int, database_url: str | None, *, dry_run: bool) -> Json:
    """Thin the samples of old trials; return the counts of changes."""
    with opened_sessions(database_url) as sessions:
        found = retention.prune(sessions, timedelta(days=days), keep, dry_run=dry_run)
    return {"dry_run": dry_run, **asdict(found)}


def vacuum(database_url: str | None) -> None:
    """Return the space of deleted rows to the disk."""
    with opened_sessions(database_url) as sessions:
        retention.give_back(sessions.kw["bind"])


def create_token(name: str, scope: str, days: float | None, database_url: str | None) -> Json:
    """Create a token; return what `POST /v1/tokens` does."""
    try:
        request = TokenRequest.model_validate({"name": name, "scope": scope, "days": days})
    except ValidationError as error:
        first = error.errors()[0]
        raise BadInputError(f"{first['loc'][0]}={first['input']!r}: {first['msg']}") from error
    expires = None if request.days is None else now() + timedelta(days=request.days)
    with opened_sessions(database_url) as sessions, writing(sessions) as session:
        made = token_store.create(session, request.name, request.scope, expires)
    shown = None if expires is None else moment(expires)
    return {"name": request.name, "scope": request.scope, "expires": shown, "token": made}


def tokens(database_url: str | None) -> Json:
    """Return all tokens, as `GET /v1/tokens` does."""
    with opened_sessions(database_url) as sessions, reading(sessions) as session:
        return {"tokens": [token_json(row) for row in token_store.every(session)]}


def revoke_token(name: str, database_url: str | None) -> Json:
    """Revoke a token."""
    with opened_sessions(database_url) as sessions, writing(sessions) as session:
        return token_json(token_store.revoke(session, name))


def export_store(path: str, selection: Selection, database_url: str | None) -> Json:
    """Write an archive; return its rows by member and the damaged rows left out.

    Raises MissingError if there is no database.
    """
    with stored_sessions(database_url) as sessions:
        written_by = f"tilewise {VERSION}"
        manifest = export(sessions, Path(path), selection, written_by)
    rows = {name.removesuffix(".jsonl"): part.rows for name, part in manifest.members.items()}
    left_out = {name.removesuffix(".jsonl"): rows for name, rows in manifest.left_out.items()}
    return {"file": path, "rows": rows, "left_out": left_out}


def import_store(path: str, database_url: str | None, *, resume: bool, dry_run: bool) -> Json:
    """Merge an archive, by its path or `builtin[:NAME]`; return what was, or would be, done."""
    kind, _, name = path.partition(":")
    with converted_errors():
        file = shipped(name) if kind == BUILTIN else Path(path)
        with opened(file):
            pass  # a database that is absent is not made for what is no archive
    here = {(target, identity()) for target in examine_here().targets} if resume else None
    with opened_sessions(database_url) as sessions:
        merged = restore(sessions, file, resume=here, dry_run=dry_run)
    return {
        "file": str(file),
        "dry_run": dry_run,
        "added": dict(merged.added),
        "known": dict(merged.known),
        "replaced_schedules": merged.replaced,
        "postponed_trials": merged.postponed,
        "unfinished_jobs": merged.unfinished,
        "resumed_jobs": merged.resumed,
        "stale_jobs": merged.stale,
    }


def selected(
    problems: Sequence[str] | None,
    kinds: Sequence[str] | None,
    dtypes: Sequence[str] | None,
    targets: Sequence[str] | None,
    since: str | None,
    best: bool = False,
    origin: str | None = None,
) -> Selection:
    """Return what the command line selects; `since` is ISO 8601, in UTC by default."""
    if origin is not None and not (origin.isprintable() and 0 < len(origin) <= LONGEST_ORIGIN):
        raise BadInputError(
            f"origin {quoted(origin)} is not 1 to {LONGEST_ORIGIN} printable characters"
        )
    return Selection(
        problems=tuple(parse_any(text).canonical for text in problems or ()),
        kinds=tuple(kinds or ()),
        dtypes=tuple(dtypes or ()),
        targets=tuple(map(_canonical_target, targets or ())),
        since=None if since is None else parsed_moment("since", since),
        best=best,
        origin=origin or "",
    )


def _canonical_target(text: str) -> str:
    named = parse_target(text)
    if named.cpu != "host":
        return named.canonical
    return examine_here().canonical_target(text)


def parsed_moment(name: str, text: str) -> datetime:
    """Return a day or a moment, in UTC by default; raise BadInputError with the option's name."""
    try:
        found = datetime.fromisoformat(text)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise BadInputError(
            f"{name}={text!r} is neither a day such as 2026-01-31 nor a moment"
        ) from error
