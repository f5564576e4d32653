"""Checks of the service's answers."""

import json
import time

from tilewise.service.db import models, reading


def assert_problem(answer, status, message=""):
    """Check that an answer is a problem document with this message, and return it."""
    assert answer.status_code == status, answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"
    details = answer.json()
    assert details["status"] == status and details["title"] and details["detail"]
    assert details["type"].startswith("urn:tilewise:")
    assert message in details["detail"]
    return details


def assert_refused(answer, field, message=""):
    """Check that an answer is a 422 that names one field, and return it."""
    details = assert_problem(answer, 422)
    assert [error["field"] for error in details["errors"]] == [field], json.dumps(details)
    assert message in details["errors"][0]["message"]
    return details


def assert_nothing_stored(sessions):
    with reading(sessions) as session:
        assert session.query(models.Problem).count() == 0
        assert session.query(models.Job).count() == 0


def once_made(ask, is_made=lambda answer: answer.status_code != 202):
    """The answer to a request that is repeated while a 202 says that it is being worked on."""
    until = time.monotonic() + 120
    while not is_made(answer := ask()) and time.monotonic() < until:
        time.sleep(0.2)
    return answer


def headers_of(answer):
    """The headers that equal requests have in common."""
    return {name: value for name, value in answer.headers.items() if name != "x-request-id"}


def pages(client, path, name, **query):
    """The rows of each page from this one on."""
    found = []
    while path:
        page = client.get(path, params=query or None).json()
        assert page.get("unreadable", 0) == 0 and page["next"] != path
        found.append(page[name])
        path, query = page["next"], None
    return found


def rows(client, path, name, **query):
    """The rows of all pages from this one on."""
    return [row for page in pages(client, path, name, **query) for row in page]
