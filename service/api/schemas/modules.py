"""The HTTP API's responses, as OpenAPI shows them: what a module holds."""

from pydantic import BaseModel


class FoundProblemView(BaseModel):
    """A problem of a module, how many of its ops are it, and their places."""

    problem: str
    count: int
    where: list[str]


class SkippedOpView(BaseModel):
    """An op that multiplies or convolves and is no problem, and why."""

    op: str
    reason: str
    where: str


class ImportedView(BaseModel):
    """The problems of a module, in the order of their first ops."""

    problems: list[FoundProblemView]
    skipped: list[SkippedOpView]
