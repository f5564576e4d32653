"""Pages that are made from the code: what can be typed, sent, called and set.

Face: `GENERATED`, `GeneratedPage`.
"""

from collections.abc import Callable
from dataclasses import dataclass

from docs.website.reference import (
    command_line,
    environment,
    http_api,
    problems,
    python_api,
    schedule_steps,
)


@dataclass(frozen=True)
class GeneratedPage:
    """A page that no file of the project holds.

    Attributes:
        title: of its first heading, and in the index.
        answers: the question that it answers, for the index.
        body: makes the Markdown below the heading.
    """

    title: str
    answers: str
    body: Callable[[], str]

    def text(self) -> str:
        """The page as Markdown."""
        return f"# {self.title}\n\n{self.body()}"


GENERATED = {
    "reference/command-line.md": GeneratedPage(
        "Command line", "What can I type?", command_line.page
    ),
    "reference/http-api.md": GeneratedPage(
        "HTTP API", "What can I send, and what comes back?", http_api.page
    ),
    "reference/python-api.md": GeneratedPage(
        "Python API", "What can I call, and what does it give?", python_api.page
    ),
    "reference/problems.md": GeneratedPage(
        "Problems", "Which keys does a problem have?", problems.page
    ),
    "reference/steps.md": GeneratedPage(
        "Schedule steps", "Which loop nest does a step make?", schedule_steps.page
    ),
    "reference/environment.md": GeneratedPage(
        "Environment variables", "What can I set from outside?", environment.page
    ),
}
