"""What the environment says, read in this one place."""

import re
from typing import Literal

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from tilewise.service.default_database import default_database

_SCHEDULER = re.compile(r"(tcp|tls)://\S+:\d{1,5}")
_SERVICE = re.compile(r"https?://\S+")


class Settings(BaseSettings):
    """The service's settings; each is also an argument, which wins.

    Attributes:
        db: SQLAlchemy URL of the database (`TILEWISE_DB`).
        body_bytes: bytes of the largest body of a request (`TILEWISE_BODY_BYTES`).
        module_bytes: bytes of the largest body that is an MLIR module (`TILEWISE_MODULE_BYTES`).
        bodies_bytes: bytes of all bodies that are received or processed at once, for modules and
            for other requests each; beyond them requests get 503 (`TILEWISE_BODIES_BYTES`).
        body_seconds: seconds for which the body of a request may take to come
            (`TILEWISE_BODY_SECONDS`).
        require_tokens: whether nobody is answered without a token on loopback either, as behind
            a proxy; beyond loopback nobody is, whatever this says (`TILEWISE_REQUIRE_TOKENS`).
        allowed_hosts: names under which the service may be reached, with commas; `*` for any
            (`TILEWISE_ALLOWED_HOSTS`).
        requests_per_minute: requests of each token, or of each address that shows a wrong one or
            none where one is asked for; 0 for any number (`TILEWISE_REQUESTS_PER_MINUTE`).
        jobs_in_flight: jobs of each token that wait or run; 0 for any number
            (`TILEWISE_JOBS_IN_FLIGHT`).
        stream_seconds: seconds after which a stream of events ends, for its client to open another
            (`TILEWISE_STREAM_SECONDS`).
        scheduler: address of the Dask scheduler whose workers run the jobs, `tcp://HOST:PORT` or
            `tls://HOST:PORT`; without one this machine runs them (`TILEWISE_SCHEDULER`).
        service_url: URL by which those workers reach this service; without one that of its
            address (`TILEWISE_SERVICE_URL`).
        unserved_seconds: for which a job waits while no live worker serves its target, before it
            fails (`TILEWISE_UNSERVED_SECONDS`).
        log_level: least severe level that is logged (`TILEWISE_LOG_LEVEL`).
        log_format: form of the log: `json`, `text`, or `auto`, text on a terminal and else JSON
            (`TILEWISE_LOG_FORMAT`).
    """

    model_config = SettingsConfigDict(env_prefix="TILEWISE_", env_ignore_empty=True)

    db: str = Field(default_factory=default_database)
    body_bytes: int = Field(default=8 * 1024**2, ge=1024)
    module_bytes: int = Field(default=64 * 1024**2, ge=1024)
    bodies_bytes: int = Field(default=256 * 1024**2, ge=1024)
    body_seconds: float = Field(default=60.0, gt=0, allow_inf_nan=False)
    require_tokens: bool = False
    allowed_hosts: str = ""
    requests_per_minute: int = Field(default=6000, ge=0)
    jobs_in_flight: int = Field(default=100, ge=0)
    stream_seconds: float = Field(default=3600.0, gt=0, allow_inf_nan=False)
    scheduler: str = ""
    service_url: str = ""
    unserved_seconds: float = Field(default=3600.0, gt=0, le=10 * 365 * 86400, allow_inf_nan=False)
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["auto", "json", "text"] = "auto"

    @field_validator("scheduler")
    @classmethod
    def _is_a_scheduler(cls, text: str) -> str:
        if text and not _SCHEDULER.fullmatch(text):
            raise ValueError("write tcp://HOST:PORT or tls://HOST:PORT")
        return text

    @field_validator("service_url")
    @classmethod
    def _is_a_url(cls, text: str) -> str:
        if text and not _SERVICE.fullmatch(text):
            raise ValueError("write http://HOST:PORT or https://HOST")
        return text

    @property
    def host_names(self) -> frozenset[str]:
        """`allowed_hosts` as names."""
        return frozenset(name.strip().lower() for name in self.allowed_hosts.split(",")) - {""}
