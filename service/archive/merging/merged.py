"""What an import has done, and the numbers that the rows of the archive have in this database."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tilewise.service.archive.lines import JobLine, ScheduleLine


@dataclass
class Merged:
    """What an import has done.

    Attributes:
        added, known: rows that are new, and those that were there already, by table.
        replaced: schedules that gave way to a faster one of the archive.
        postponed: trials of jobs that wait or run here, which are left as they are.
        unfinished: jobs that had not ended where the archive was written.
        resumed: searches that were asked for anew in their place.
    """

    added: Counter[str] = field(default_factory=Counter)
    known: Counter[str] = field(default_factory=Counter)
    replaced: int = 0
    postponed: int = 0
    unfinished: int = 0
    resumed: int = 0

    def count(self, table: str, *, is_new: bool) -> None:
        """Count a row."""
        (self.added if is_new else self.known)[table] += 1


@dataclass(frozen=True)
class LocalJob:
    """A job of the archive as it is in this database.

    Attributes:
        id: its number here.
        is_active: whether it waits or runs here.
    """

    id: int
    is_active: bool


@dataclass
class Numbers:
    """What the rows of an archive are called in this database.

    Attributes:
        problems: by canonical string.
        toolchains: by identity.
        machines: by host.
        jobs: by name.
        unfinished: the lines of jobs that had not ended.
    """

    problems: dict[str, int] = field(default_factory=dict)
    toolchains: dict[str, int] = field(default_factory=dict)
    machines: dict[str, int] = field(default_factory=dict)
    jobs: dict[str, LocalJob] = field(default_factory=dict)
    unfinished: list[JobLine] = field(default_factory=list)

    def work(self, line: JobLine | ScheduleLine) -> dict[str, Any]:
        """The columns of the piece of work that a job or a schedule is for."""
        return {
            "problem_id": self.problems[line.problem],
            "target": line.target,
            "toolchain_id": self.toolchains[line.toolchain],
            "cache": line.cache,
        }
