"""A job followed by looking at it again and again, where a service has no stream of its events."""

from collections.abc import Callable, Iterator

from tilewise.client.events import Event, JobEnded, PhaseReached, TrialEnded
from tilewise.client.exchange import Ask, Exchange, Pause, ask, json_of
from tilewise.client.pages import Page, first_page, read_page
from tilewise.client.results import Job, Phase, Trial, read

POLL_S = 1.0


def poll(
    job_id: int, after: int, on_event: Callable[[Event], None] | None, url: str
) -> Exchange[Job]:
    """Wait for the end of a job.

    Args:
        job_id: the job.
        after: number of the last trial that is known; -1 for none.
        on_event: told of the same events as a stream would bring.
        url: of the service, as messages show it.
    """
    seen = _Seen(job_id, after)
    while True:
        job = read(Job, json_of((yield from ask(Ask("GET", f"/v1/jobs/{job_id}"), url)), url))
        if on_event is not None:
            # The job was looked at first: once it has ended, its trials are all there.
            for event in (yield from seen.news(job, url)):
                on_event(event)
        if job.has_ended:
            return job
        yield Pause(POLL_S)


class _Seen:
    """What is known of a job.

    Args:
        job_id: the job.
        after: number of the last trial that is known; -1 for none.
    """

    def __init__(self, job_id: int, after: int) -> None:
        self._after = after
        self._page = first_page("trials", f"/v1/jobs/{job_id}/trials")
        self._phase: Phase | None = None
        self._ended = 0

    def news(self, job: Job, url: str) -> Exchange[list[Event]]:
        """The events since the last look."""
        found: list[Event] = []
        if job.trials.ended != self._ended:
            self._ended = job.trials.ended
            found += yield from self._trials(url)
        if job.phase is not None and job.phase != self._phase:
            self._phase = job.phase
            found.append(PhaseReached(job.phase))
        return [*found, JobEnded(job)] if job.has_ended else found

    def _trials(self, url: str) -> Exchange[list[Event]]:
        """Those that are new; only the last page can have grown."""
        found: list[Event] = []
        while True:
            page = yield from read_page(self._page, url)
            found += self._new(page)
            if page.following is None:
                return found
            self._page = page.following

    def _new(self, page: Page) -> Iterator[Event]:
        for trial in (read(Trial, source) for source in page.items):
            if trial.number > self._after:
                self._after = trial.number
                yield TrialEnded(trial)
