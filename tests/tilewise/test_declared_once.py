from dataclasses import fields

import pytest

from tests.tilewise.conftest import PROBLEM
from tilewise.cli.parser import make_parser
from tilewise.search.records import TuneOptions, TuneRequest
from tilewise.service.api.requests import JobRequest
from tilewise.service.db import models

NAMES = [field.name for field in fields(TuneRequest)]


def test_the_clients_options_are_the_fields() -> None:
    assert list(TuneOptions.__annotations__) == NAMES


def test_a_jobs_row_keeps_each_field() -> None:
    assert {*NAMES} <= {*models.Job.__table__.columns.keys()}


def test_a_request_of_the_api_and_of_the_command_line_is_that_of_the_search() -> None:
    wanted = TuneRequest(7, 7.5, 7, "random", True, "cold", 7)
    body = JobRequest.model_validate({"problem": PROBLEM, **vars(wanted)})
    assert TuneRequest.of(body) == wanted
    typed = [f"--{name}={value}" for name, value in vars(wanted).items() if value is not True]
    options = make_parser().parse_args(["tune", PROBLEM, "--peers", *typed])
    assert TuneRequest.of(options) == wanted


@pytest.mark.parametrize("name", NAMES)
def test_a_field_left_out_has_its_default(name: str) -> None:
    default = getattr(TuneRequest(), name)
    assert getattr(JobRequest.model_validate({"problem": PROBLEM}), name) == default
    assert getattr(make_parser().parse_args(["tune", PROBLEM]), name) == default
