"""The leader of a job, as a helper reaches it through the service."""

from tilewise.search.helpers import Candidate
from tilewise.search.records import TrialRecord
from tilewise.service.runs.calls import RunCalls
from tilewise.service.runs.keeper import Order
from tilewise.service.runs.wire.candidates import GivenWire, HelpWire
from tilewise.service.runs.wire.orders import BeginWire, OrderWire
from tilewise.service.runs.wire.trials import TrialWire


class HttpLeader:
    """A `tilewise.search.helpers.Leader` at the service.

    Args:
        calls: to the service, with the token of a helper's offer.
        owner: this process, from `tilewise.service.host.process_identity.me`.
        toolchain: identity of the compilers here.
        job_id: the job.

    Attributes:
        epoch: number of the run that was joined.
        request_id: of the request that asked for the job.
        order: what is searched for.

    Raises:
        LeaseLostError: the search is over or needs no help, or it is for other compilers.
        UnreachableError: the service does not answer.
    """

    def __init__(self, calls: RunCalls, owner: str, toolchain: str, job_id: int) -> None:
        self._calls = calls
        joined = calls.post("/join", BeginWire(owner=owner, toolchain=toolchain), OrderWire)
        self.epoch, self.request_id = joined.epoch, joined.request_id
        self.order: Order = joined.order(job_id)

    def help(self, answer: TrialRecord | None, wants: int) -> list[Candidate] | None:
        """Say what came of a candidate, and take others; None where the search is over.

        Raises:
            LeaseLostError: the run that was joined is over.
            UnreachableError: the service does not answer.
        """
        told = None if answer is None else TrialWire.of(answer)
        said = HelpWire(epoch=self.epoch, answer=told, wants=wants)
        given = self._calls.post("/help", said, GivenWire)
        if given.word == "stop":
            return None
        return [one.candidate() for one in given.candidates]
