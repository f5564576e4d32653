import asyncio
import json
import re
from datetime import timedelta

import pytest

from tests.service.conftest import PROBLEM
from tilewise.service.api.events.news import EncodedEvent, NewsReader
from tilewise.service.api.executors import Lane
from tilewise.service.db import models, reading, writing
from tilewise.service.db.base import now
from tilewise.service.jobs import model_jobs

OTHERS = [f"matmul:m={m},n=48,k=32,dtype=f32" for m in (65, 66, 67)]
YEAR = timedelta(days=365)


@pytest.fixture
def wide(plan, submit, sessions) -> int:
    number = plan()
    jobs = {problem: submit(problem) for problem in OTHERS}
    with writing(sessions) as session:
        row = session.get_one(models.Plan, number)
        row.variants = [{"problem": problem, "job": job} for problem, job in jobs.items()]
    return number


@pytest.fixture
def end(sessions):
    def of(job_id, wrong_by=timedelta(0)):
        with writing(sessions) as session:
            job = session.get_one(models.Job, job_id)
            job.state, job.finished_at = "cancelled", now() + wrong_by

    return of


@pytest.fixture
def told(sessions):
    """The problems that a plan tells after a number, each with its number; of a new process."""

    def of(number, after=-1):
        reader = NewsReader(Lane("reads", 1), sessions)
        (news,) = asyncio.run(reader.every({("plan", number): after})).values()
        assert isinstance(news, EncodedEvent) and news.is_settled
        found = [json.loads(re.findall(rb"data: (.*)", event)[0]) for _, event in news.parts]
        assert [one["done"] - 1 for one in found] == [number for number, _ in news.parts]
        assert all(one["total"] == 4 for one in found)
        return [
            (number, one["problem"]) for (number, _), one in zip(news.parts, found, strict=True)
        ]

    return of


def test_what_ends_later_has_a_later_number_whatever_its_clock_says(wide, end, told):
    assert told(wide) == []
    end(4, YEAR)
    assert told(wide) == [(0, OTHERS[1])]
    end(3, -YEAR)
    first = [(0, OTHERS[1]), (1, OTHERS[0])]
    assert told(wide) == first
    end(5, -2 * YEAR)
    end(1)
    assert told(wide, 1) == [(2, PROBLEM), (3, OTHERS[2])], "told at once: in the plan's order"
    assert told(wide) == [*first, (2, PROBLEM), (3, OTHERS[2])]


def test_numbers_outlive_a_cancellation_and_go_with_their_plan(wide, end, told, sessions):
    end(5)
    with writing(sessions) as session:
        model_jobs.cancel_plan(session, wide)
    assert told(wide) == [(0, OTHERS[2])]
    end(3)
    assert told(wide) == [(0, OTHERS[2]), (1, OTHERS[0])]
    with writing(sessions) as session:
        session.delete(session.get_one(models.Plan, wide))
    with reading(sessions) as session:
        assert session.query(models.PlanEnding).count() == 0
