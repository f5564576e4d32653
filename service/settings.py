"""What the environment says, read in this one place."""

import os
from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict
from sqlalchemy import URL

from service.errors import DatabaseError


def default_database() -> str:
    """URL of the SQLite file in the user's data folder.

    Raises:
        DatabaseError: there is no such folder, or its name is not text.
    """
    base = os.environ.get("XDG_DATA_HOME")
    try:
        data = Path(base) if base else Path.home() / ".local" / "share"
    except RuntimeError as error:
        raise DatabaseError("this user has no home folder; set TILEWISE_DB") from error
    file = data / "tilewise" / "tilewise.db"
    try:
        return URL.create("sqlite", database=str(file)).render_as_string()
    except UnicodeEncodeError as error:
        raise DatabaseError(
            f"the folder of user data {str(data)!r} is not text in UTF-8; set TILEWISE_DB"
        ) from error


class Settings(BaseSettings):
    """The service's settings; each is also an argument, which wins.

    Attributes:
        db: SQLAlchemy URL of the database (`TILEWISE_DB`).
        body_bytes: largest body of a request (`TILEWISE_BODY_BYTES`).
        stream_seconds: after which a stream of events ends, for its client to open another
            (`TILEWISE_STREAM_SECONDS`).
        log_level: least severe level that is logged (`TILEWISE_LOG_LEVEL`).
    """

    model_config = SettingsConfigDict(env_prefix="TILEWISE_", env_ignore_empty=True)

    db: str = Field(default_factory=default_database)
    body_bytes: int = Field(default=8 * 1024**2, ge=1024)
    stream_seconds: float = Field(default=3600.0, gt=0, allow_inf_nan=False)
    log_level: Literal["debug", "info", "warning", "error"] = "info"
