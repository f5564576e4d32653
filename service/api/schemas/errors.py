"""The HTTP API's responses, as OpenAPI shows them: errors, and answers that say to come again."""

from pydantic import BaseModel


class FieldError(BaseModel):
    """One field of the request, and what is wrong with it."""

    field: str
    message: str


class ProblemDetails(BaseModel):
    """An error, by RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    errors: list[FieldError] | None = None


class RefusedView(BaseModel):
    """Why what is stored is not served; `type` is that of the problem details of a single GET."""

    type: str
    detail: str


class UnfinishedView(BaseModel):
    """What was asked for is being made; ask `location` again."""

    detail: str
    location: str
