"""The settings of the service from environment variables."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from tilewise.service.default_database import default_database


def _of_form(pattern: str, advice: str) -> AfterValidator:
    """Require that a text is empty or matches a pattern."""

    def check(text: str) -> str:
        if text and not re.fullmatch(pattern, text):
            raise ValueError(advice)
        return text

    return AfterValidator(check)


_SCHEDULER = _of_form(r"(tcp|tls)://\S+:\d{1,5}", "write tcp://HOST:PORT or tls://HOST:PORT")
_SERVICE = _of_form(r"https?://\S+", "write http://HOST:PORT or https://HOST")
_HOURS = _of_form(
    r"([01]?\d|2[0-3])-([01]?\d|2[0-4])", "write two hours of the day in UTC, such as 22-6"
)


class Settings(BaseSettings):
    """The service's settings; each is also an argument, which wins.

    The environment variables are `TILEWISE_` and the name in capitals, such as `TILEWISE_DB`.

    Attributes:
        db: SQLAlchemy URL of the database.
        body_bytes: bytes of the largest body of a request.
        module_bytes: bytes of the largest body that is an MLIR module.
        bodies_bytes: bytes of all bodies that are received or processed at once, for modules and
            for other requests each; beyond them requests get 503.
        body_seconds: seconds within which the body of a request must arrive.
        require_tokens: whether tokens are needed on loopback too, as behind a proxy; beyond
            loopback they always are.
        allowed_hosts: names under which the service may be reached, with commas; `*` for any.
        requests_per_minute: of each token, or of each address without a valid one; 0 for any.
        jobs_in_flight: queued and running jobs of each token; 0 for any number.
        stream_seconds: after which a stream of events ends, for its client to open another.
        scheduler: address of the Dask scheduler whose workers run the jobs, `tcp://HOST:PORT` or
            `tls://HOST:PORT`; without one this machine runs them.
        service_url: URL by which those workers reach this service; by default its address.
        unserved_seconds: after which a job fails if no live worker serves its target.
        recheck_hours: hours of the day in UTC, such as `22-6`, in which idle workers time results
            of earlier toolchains again; empty for none.
        recheck_seconds: of all such jobs that begin on one day.
        log_level: least severe level that is logged.
        log_format: `json`, `text`, or `auto`: text on a terminal, else JSON.
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
    scheduler: Annotated[str, _SCHEDULER] = ""
    service_url: Annotated[str, _SERVICE] = ""
    unserved_seconds: float = Field(default=3600.0, gt=0, le=10 * 365 * 86400, allow_inf_nan=False)
    recheck_hours: Annotated[str, _HOURS] = ""
    recheck_seconds: float = Field(default=3600.0, gt=0, le=86400, allow_inf_nan=False)
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["auto", "json", "text"] = "auto"

    @property
    def host_names(self) -> frozenset[str]:
        """`allowed_hosts` as names."""
        return frozenset(name.strip().lower() for name in self.allowed_hosts.split(",")) - {""}
