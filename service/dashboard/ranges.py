"""The page of a range."""

from functools import partial

from sqlalchemy.orm import Session

from tilewise.schema.base import Json
from tilewise.search.ranges.result import size_text
from tilewise.service.api.files import look_up
from tilewise.service.api.range_documents import range_json
from tilewise.service.dashboard import stored
from tilewise.service.db import models
from tilewise.service.errors import NotFoundError
from tilewise.service.plots.ranges import sampled
from tilewise.service.results.stored import Lookup


def shown(chosen: models.TunedRange, toolchain: str) -> Json:
    """Return what the page of a range shows; raise TamperedError if the row was changed."""
    result = range_json(chosen, toolchain)
    functions = {"size_text": partial(size_text, result), "steps_text": stored.steps_text}
    keys = [problem.key for problem in sampled(result)]
    return {"result": result, "keys": keys, "number": chosen.id, "job": chosen.job_id, **functions}


def plotted(session: Session, number: int, toolchain: str) -> tuple[Json, list[Json | None]]:
    """Return the object of a range, and those of the results of its samples."""
    row = session.get(models.TunedRange, number)
    if row is None:
        raise NotFoundError(f"there is no range {number}")
    result = range_json(row, toolchain)
    lookup = Lookup(row.target, toolchain, row.cache)
    found = look_up(session, sampled(result), lookup)
    return result, [one["schedule"] for one in found["schedules"]]
