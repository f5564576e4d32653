"""The HTTP API's requests, as OpenAPI shows them."""

from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    field_validator,
)

from search.records import DEFAULT_SAMPLER, SAMPLERS, CacheMode

MOST_PROBLEMS = 1000


def _problem_source(value: object) -> object:
    """One message for both forms, instead of one for each."""
    if isinstance(value, str | dict):
        return value
    raise ValueError("give a problem string, or its JSON object")


class JobRequest(BaseModel):
    """What to tune, where, and how hard."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"problem": "matmul:m=1024,n=512,k=2048,dtype=f32", "trials": 64}]
        },
    )

    problem: Annotated[str | dict[str, Any], BeforeValidator(_problem_source)]
    target: str = "host"
    trials: StrictInt = 64
    seconds: StrictFloat | None = None
    seed: StrictInt = 0
    sampler: str = DEFAULT_SAMPLER
    peers: StrictBool = False
    cache: CacheMode = "hot"
    wait: StrictBool = False

    @field_validator("sampler")
    @classmethod
    def _is_known(cls, name: str) -> str:
        """Refuse a class by name: a request must not choose what code the service imports."""
        if name not in SAMPLERS and ":" in name:
            raise ValueError(
                f"over HTTP one of {', '.join(SAMPLERS)}; a MODULE:CLASS runs with "
                "`tilewise tune` on the machine that has it"
            )
        return name


class LookupRequest(BaseModel):
    """Problems, each a string or its JSON object, and the target of all of them."""

    model_config = ConfigDict(extra="forbid")

    problems: Annotated[
        list[Annotated[str | dict[str, Any], BeforeValidator(_problem_source)]],
        Field(max_length=MOST_PROBLEMS),
    ]
    target: str = "host"
    cache: CacheMode | None = None
