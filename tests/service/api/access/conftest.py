"""Tokens, and a service as it is beyond loopback."""

import pytest
from fastapi.testclient import TestClient

from tests.service.conftest import TOOLCHAIN, settings_for
from tilewise.service.app import create_app
from tilewise.service.db import tokens, writing


@pytest.fixture
def make_token(sessions):
    def make(name="ci", scope="read", expires=None, revoked=False):
        with writing(sessions) as session:
            token = tokens.create(session, name, scope, expires)
            if revoked:
                tokens.revoke(session, name)
        return token

    return make


@pytest.fixture
def guarded(url, machine, tuned):
    """A service as it is beyond loopback: nobody is answered without a token."""
    made = []

    def make(**settings):
        chosen = settings_for(url, require_tokens=True, **settings)
        app = create_app(chosen, 0, machine=machine, toolchain=TOOLCHAIN)
        made.append(TestClient(app))
        return made[-1].__enter__()

    yield make
    for client in made:
        client.__exit__(None, None, None)
