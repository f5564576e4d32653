"""The HTTP API's responses, as OpenAPI shows them: workers, health, tokens."""

from datetime import datetime
from typing import Literal

from pydantic import BaseModel

from tilewise.service.api.schemas.results import FiniteView
from tilewise.service.db.models import Scope


class WorkersView(FiniteView):
    """A process that takes jobs, and its machine.

    `peaks` are multiply-add peaks of one thread in GFLOP/s by dtype, empty until they were
    measured; `bandwidth_gbs` is what one thread reads from memory, null until then; `features`
    are instruction-set extensions by LLVM's names, null where unknown.
    """

    host: str
    cpu: str
    cores: int
    targets: list[str]
    toolchain: str
    capacity: int
    features: list[str] | None
    peaks: dict[str, float]
    bandwidth_gbs: float | None
    peaks_at: datetime | None
    seen: datetime


class TargetsView(BaseModel):
    """Targets that live workers serve, and the workers, of every process on the database."""

    targets: list[str]
    workers: list[WorkersView]


class TokenView(BaseModel):
    """A token, without itself; `used` is to the minute."""

    name: str
    scope: Scope
    created: datetime
    expires: datetime | None
    revoked: datetime | None
    used: datetime | None


class TokensView(BaseModel):
    """All tokens, by name."""

    tokens: list[TokenView]


class NewTokenView(BaseModel):
    """A token that was made; nobody can be told it again."""

    name: str
    scope: Scope
    expires: datetime | None
    token: str


class StatusView(BaseModel):
    """Whether the service is there, and its version."""

    status: Literal["ok"] = "ok"
    version: str


class ReadyView(BaseModel):
    """The service is fit to work; each part that was looked at is named."""

    status: Literal["ok"] = "ok"
    checks: dict[str, str]
