"""The HTTP API's responses, as OpenAPI shows them: a whole model and its problems."""

from datetime import datetime

from tilewise.kernels.problem import Accuracy
from tilewise.search.records import CacheMode
from tilewise.service.api.schemas.modules import FoundProblemView, SkippedOpView
from tilewise.service.api.schemas.results import FiniteView
from tilewise.service.db.models import JobState


class PartView(FoundProblemView):
    """A problem of a model: the state of its job, and the time of what is stored, if any is.

    `job` is null where a stored schedule answered.
    """

    key: str
    state: JobState
    job: int | None
    time_us: float | None


class NetworkView(FiniteView):
    """A model whose problems are tuned as one.

    `time_us` is the sum over all problems, each by its count; null while one has no schedule.
    """

    id: int
    state: JobState
    sha256: str
    target: str
    toolchain: str
    cache: CacheMode
    accuracy: Accuracy
    trials: int
    problems: list[PartView]
    skipped: list[SkippedOpView]
    time_us: float | None
    created: datetime
    links: dict[str, str]
