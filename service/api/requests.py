"""The HTTP API's requests, as OpenAPI shows them."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

import pydantic
from fastapi import Query
from pydantic import AfterValidator

from tilewise.schema.base import Match, Scope, declared
from tilewise.search.networks.request import PlanRequest
from tilewise.search.records import MOST_SPREAD, SAMPLERS, CacheMode, TuneRequest, option

MOST_PROBLEMS = 1000
LONGEST_NAME = 200  # of a model

NAME = r"^[A-Za-z0-9][A-Za-z0-9._@+-]*$"
"""Of a token: what needs no quotes anywhere."""

MOST_DAYS = 3650

FileKind = Literal["cpu", "air", "iree", "iree-spec", "kernel"]
FILE_KINDS: tuple[FileKind, ...] = get_args(FileKind)
Key = Annotated[str, pydantic.StringConstraints(max_length=64)]
Tag = Annotated[str, pydantic.StringConstraints(max_length=128)]
TargetText = Annotated[
    str,
    Query(
        examples=["host", "cpu:znver5,threads=2", "cpu:emeraldrapids,threads=1,features=-amx-tile"]
    ),
]
"""Of the query."""


def printable(text: str) -> str:
    """Return a text of one line; ValueError if it has characters that cannot be printed."""
    if not text.isprintable():
        raise ValueError("has characters that cannot be printed")
    return text


Name = Annotated[str, Query(min_length=1, max_length=LONGEST_NAME), AfterValidator(printable)]


@dataclass(frozen=True)
class PlanQuery(PlanRequest):
    """A plan as parameters of the query: a dependency."""

    name: Name | None = option(None, "")


def _problem_source(value: object) -> object:
    """One message for both forms, instead of one for each."""
    if isinstance(value, str | dict):
        return value
    raise ValueError("give a problem string, or its JSON object")


class _Subject(pydantic.BaseModel):
    """What to tune, and where."""

    model_config = pydantic.ConfigDict(extra="forbid", strict=True)

    problem: Annotated[str | dict[str, Any], pydantic.BeforeValidator(_problem_source)]
    target: str = "host"


_Search: Any = pydantic.create_model("_Search", __base__=_Subject, **declared(TuneRequest))


class JobRequest(_Search):  # type: ignore[misc]  # a base made of `TuneRequest` at run time
    """The request of a search.

    `again` times the finalists of a stored result again, with its own number of trials.
    The kind `recheck` times the winner of an earlier toolchain again, without a search.
    """

    model_config = pydantic.ConfigDict(
        json_schema_extra={
            "examples": [{"problem": "matmul:m=1024,n=512,k=2048,dtype=f32", "trials": 64}]
        }
    )

    spread: Annotated[int, pydantic.Field(ge=1, le=MOST_SPREAD)] = 1
    kind: Literal["tune", "recheck"] = "tune"
    again: bool = False
    wait: bool = False

    @pydantic.field_validator("sampler")
    @classmethod
    def _is_known(cls, name: str) -> str:
        """Refuse a class by name: a request must not choose what code the service imports."""
        if name not in SAMPLERS and ":" in name:
            raise ValueError(
                f"give one of {', '.join(SAMPLERS)}; a service runs no MODULE:CLASS, but "
                "`tilewise tune` without --server does"
            )
        return name


class LookupRequest(pydantic.BaseModel):
    """Problems, each a string or its JSON object, and the target of all of them.

    `files` are flavors of scripts, and `kernel`. `known` are, by key of a problem, the entity tags
    of the files that the client has: where none differs, the answer says that and no more. With
    `predict` problems that nothing is stored of are answered with a predicted schedule, and with
    `trials` jobs of so many search them.
    """

    model_config = pydantic.ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "problems": ["matmul:m=1024,n=512,k=2048,dtype=f32"],
                    "target": "cpu:znver5,threads=1",
                    "files": ["cpu"],
                }
            ]
        },
    )

    problems: Annotated[
        list[Annotated[str | dict[str, Any], pydantic.BeforeValidator(_problem_source)]],
        pydantic.Field(max_length=MOST_PROBLEMS),
    ]
    target: str = "host"
    cache: CacheMode | None = None
    match: Match = "exact"
    files: Annotated[list[FileKind], pydantic.Field(max_length=len(FILE_KINDS))] = []
    predict: bool = False
    trials: int = 0
    known: Annotated[dict[Key, dict[FileKind, Tag]], pydantic.Field(max_length=MOST_PROBLEMS)] = {}


class TokenRequest(pydantic.BaseModel):
    """The request of a token: its name, scope and days."""

    model_config = pydantic.ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"name": "ci", "scope": "read", "days": 90}]},
    )

    name: Annotated[str, pydantic.StringConstraints(pattern=NAME, max_length=100)]
    scope: Scope
    days: Annotated[float, pydantic.Field(gt=0, le=MOST_DAYS, allow_inf_nan=False)] | None = None
