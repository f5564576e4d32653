"""`/v1/tokens`: tokens, managed with scope `admin`."""

from datetime import timedelta
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Path

from tilewise.service.api.documents import token_json
from tilewise.service.api.executors import in_executor
from tilewise.service.api.problem_details import responses
from tilewise.service.api.requests import NAME, TokenRequest
from tilewise.service.api.schemas import NewTokenView, TokensView, TokenView
from tilewise.service.api.services import ServicesDep
from tilewise.service.db import tokens
from tilewise.service.db.base import now

router = APIRouter(prefix="/v1/tokens", tags=["tokens"])

TokenName = Annotated[str, Path(pattern=NAME, max_length=100)]


@router.get("", response_model=TokensView)
@in_executor("reads")
def list_tokens(services: ServicesDep) -> dict[str, Any]:
    """List all tokens by name, without their secrets."""
    with services.reading() as session:
        return {"tokens": [token_json(row) for row in tokens.every(session)]}


@router.post(
    "",
    response_model=NewTokenView,
    status_code=HTTPStatus.CREATED,
    responses=responses(HTTPStatus.CONFLICT),
)
@in_executor("writes")
def create_token(body: TokenRequest, services: ServicesDep) -> dict[str, Any]:
    """Create a token, which is shown only once."""
    expires = None if body.days is None else now() + timedelta(days=body.days)
    with services.writing() as session:
        token = tokens.create(session, body.name, body.scope, expires)
    return {"name": body.name, "scope": body.scope, "expires": expires, "token": token}


@router.delete("/{name}", response_model=TokenView, responses=responses(HTTPStatus.NOT_FOUND))
@in_executor("writes")
def revoke_token(name: TokenName, services: ServicesDep) -> dict[str, Any]:
    """Revoke a token, in this process at once and in others within a second."""
    with services.writing() as session:
        answer = token_json(tokens.revoke(session, name))
    services.tokens.forget()
    return answer
