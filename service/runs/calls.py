"""Calls of a run to the service, repeated until they are answered."""

import time
from typing import TypeVar

import httpx
from pydantic import ValidationError

from tilewise.service.errors import LeaseLostError, ServiceError, UnreachableError
from tilewise.service.runs.wire.base import Wire
from tilewise.service.runs.wire.orders import WordWire

Answer = TypeVar("Answer", bound=Wire)

PATIENCE_S = 120.0
ANSWER_S = 10.0
ASKED_S = 2.0  # for a question that is soon asked again
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 2.0
# The job has ended, or another run has it: the token is worth nothing, or its run is over.
_LOST = (401, 403, 404, 409)
_PASSING = (408, 429)


class RunCalls:
    """Asks the service about one job, with the token of its offer.

    A call that is not answered, or by a service that cannot serve now, is sent again: all of them
    may be sent twice.

    Args:
        url: of the service.
        job_id: the job.
        token: of the offer.
        patience_s: for which an answer is waited for.
        transport: by which it is reached; None is HTTP.
    """

    def __init__(
        self,
        url: str,
        job_id: int,
        token: str,
        *,
        patience_s: float = PATIENCE_S,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._url, self._job_id = url, job_id
        self._patience_s = patience_s
        self._client = httpx.Client(
            base_url=f"{url.rstrip('/')}/v1/runs/{job_id}",
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
            timeout=ANSWER_S,
            transport=transport,
        )

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def post(self, path: str, said: Wire | None, kind: type[Answer]) -> Answer:
        """What the service answers to something that is said.

        Raises:
            LeaseLostError: the job has ended, or another run has it.
            UnreachableError: no answer in time.
            ServiceError: the service refuses what is said.
        """
        return self._answered("POST", path, said, {}, kind)

    def get(self, path: str, kind: type[Answer], **query: str | int) -> Answer:
        """What the service answers to a question; raises what `post` does."""
        return self._answered("GET", path, None, query, kind)

    def goes_on(self) -> bool | None:
        """Whether the run is to go on; asked once. None where nobody answers that now."""
        try:
            answer = self._client.post("/alive", timeout=ASKED_S)
            if answer.status_code in _LOST:
                return False
            return WordWire.model_validate_json(answer.content).word == "go"
        except (httpx.TransportError, ValidationError):
            return None

    def _answered(
        self,
        method: str,
        path: str,
        said: Wire | None,
        query: dict[str, str | int],
        kind: type[Answer],
    ) -> Answer:
        body = None if said is None else said.model_dump_json()
        deadline, pause_s = time.monotonic() + self._patience_s, _FIRST_PAUSE_S
        while True:
            try:
                answer = self._client.request(method, path, content=body, params=query)
                if answer.is_success:
                    return kind.model_validate_json(answer.content)
                why = self._refused(answer)
            except httpx.TransportError as error:
                why = str(error) or type(error).__name__
            if time.monotonic() + pause_s > deadline:
                raise UnreachableError(
                    f"the service {self._url} has not answered job {self._job_id} for "
                    f"{self._patience_s:.0f} s: {why}"
                )
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _refused(self, answer: httpx.Response) -> str:
        """Why an answer says that it cannot be given now; raises where it never will be."""
        detail = _detail(answer)
        if answer.status_code in _LOST:
            raise LeaseLostError(detail)
        if answer.status_code >= 500 or answer.status_code in _PASSING:
            return detail
        raise ServiceError(f"the service {self._url} refuses job {self._job_id}: {detail}")


def _detail(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return f"HTTP status {answer.status_code}"
