"""Commands on this machine and its database, through the service's own functions."""

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pydantic import ValidationError

from kernels.footprint import check_memory
from kernels.problem import Problem, parse_problem
from kernels.system.toolchain import identity
from search.records import CacheMode, TuneRequest
from service.api.documents import result_json, stored_trial_json, trials_json
from service.db import models, schema
from service.db.session import Sessions, make_engine, make_sessions, reading, writing
from service.errors import DatabaseError, HostError, NotFoundError, ServiceError
from service.host.machine import examine_here
from service.host.process_identity import me
from service.jobs import lease, queue
from service.results import integrity, schedules, scripts, trials
from service.settings import Settings
from service.workers.job_run import Event, JobOutcome, TrialEnded, run_job
from tilewise.backends.base import Backend, Report
from tilewise.errors import BadInputError, MissingError, TilewiseError

Json = dict[str, Any]
POLL_S = 0.5


def _require_flavor(flavor: str) -> None:
    """Raise MissingError where no tuning will ever make the script."""
    if flavor != "cpu":
        raise MissingError(f"there are no scripts of flavor={flavor} yet; give cpu or air")


@contextmanager
def told() -> Iterator[None]:
    """The service's errors as the command line's: a bad database is bad input."""
    try:
        yield
    except (DatabaseError, HostError) as error:
        raise BadInputError(str(error)) from error
    except ValidationError as error:
        first = error.errors()[0]
        variable = "TILEWISE_" + "_".join(map(str, first["loc"])).upper()
        raise BadInputError(f"{variable}={first['input']!r}: {first['msg']}") from error
    except NotFoundError as error:
        raise MissingError(str(error)) from error
    except ServiceError as error:
        raise TilewiseError(str(error)) from error


def settings(database_url: str | None) -> Settings:
    """The environment's settings, with `--db` winning."""
    return Settings(db=database_url) if database_url else Settings()


def serve(host: str, port: int, workers: int, database_url: str | None) -> None:
    """Serve until interrupted."""
    from service.server import serve as run

    with told():
        run(host, port, workers, settings(database_url))


def database(action: str, database_url: str | None) -> Json:
    """Upgrade or check; BadInputError when the database is not as it must be."""
    with told():
        url = settings(database_url).db
        if action == "upgrade":
            schema.upgrade(url)
        engine = make_engine(url)
        try:
            schema.check(engine)
        finally:
            engine.dispose()
        return {"database": make_engine(url).url.render_as_string(), "schema": schema.head()}


class LocalBackend(Backend):
    """Searches here and keeps the results in this machine's database."""

    def __init__(self, database_url: str | None, began: float | None = None) -> None:
        self._url = database_url
        self._began = began
        self._machine = examine_here()

    def close(self) -> None:
        """Nothing is held between commands."""

    def tune(self, problem: str, target: str, request: TuneRequest, report: Report) -> Json:
        """Answer from the store, wait for a running job, or run one."""
        wanted = parse_problem(problem)
        check_memory(wanted)
        canonical = self._machine.require_served(target)
        with self._sessions() as sessions:
            self._answer(sessions, wanted, canonical, request, report)
            return self._result(sessions, wanted, canonical, request.cache)

    def _answer(
        self,
        sessions: Sessions,
        problem: Problem,
        target: str,
        request: TuneRequest,
        report: Report,
    ) -> None:
        """See to it that a result of at least this budget is stored."""
        budget = 0
        while budget < request.trials:
            with writing(sessions) as session:
                made = queue.create_or_join(session, problem, target, request, identity())
                job = made.job
            if job is None:
                sys.stderr.write("tilewise: answered from the store\n")
                return
            budget = job.trials
            if budget != request.trials:
                sys.stderr.write(f"tilewise: joined job {job.id}, of {budget} trials\n")
            self._finish(sessions, job.id, report)

    def show(self, problem: str, target: str, cache: CacheMode | None = None) -> Json:
        """The stored result."""
        wanted = parse_problem(problem)
        canonical = self._machine.canonical_target(target)
        with self._stored() as sessions:
            return self._result(sessions, wanted, canonical, cache)

    def script(self, problem: str, target: str, flavor: str, with_payload: bool) -> str:
        """The proven script, with its payload if asked."""
        wanted = parse_problem(problem)
        canonical = self._machine.canonical_target(target)
        _require_flavor(flavor)
        with self._stored() as sessions, reading(sessions) as session:
            found = scripts.find_script(session, wanted, canonical, flavor)
            if found is None:
                raise MissingError(
                    f"no proven {flavor} script of {wanted} is stored for {canonical}; "
                    "tilewise tune makes one"
                )
            text = found.text
        if with_payload:
            from kernels.mlir.transform.module import with_payload as joined

            return joined(wanted, text)
        return text

    def kernel(self, problem: str, target: str) -> str:
        """The module, made now."""
        from kernels.native.export.__main__ import export_result

        return export_result(self.show(problem, target))

    def trials(self, problem: str, target: str) -> list[Json]:
        """Every stored trial of the problem."""
        wanted = parse_problem(problem)
        canonical = self._machine.canonical_target(target)
        with self._stored() as sessions, reading(sessions) as session:
            found = trials.find_trials(session, problem=wanted, target=canonical)
            rows = [stored_trial_json(*row) for row in found]
        if not rows:
            raise MissingError(f"no trials of {wanted} are stored for {canonical}")
        return rows

    @contextmanager
    def _stored(self) -> Iterator[Sessions]:
        """Sessions to read what is there; a database that is not is not made."""
        # A refused row is logged too; here the error, in one line, is all that a user needs.
        logging.getLogger(integrity.__name__).addHandler(logging.NullHandler())
        with told():
            url = settings(self._url).db
            if schema.is_absent(url):
                name = make_engine(url).url.render_as_string()
                raise MissingError(
                    f"database {name} does not exist, so nothing is stored; tilewise tune makes one"
                )
        with self._sessions() as sessions:
            yield sessions

    @contextmanager
    def _sessions(self) -> Iterator[Sessions]:
        with told():
            url = settings(self._url).db
            schema.prepare(url)
            engine = make_engine(url)
            try:
                yield make_sessions(engine)
            finally:
                engine.dispose()

    def _finish(self, sessions: Sessions, job_id: int, report: Report) -> None:
        """Run the job here, or wait while another process runs it."""
        while True:
            with writing(sessions) as session:
                held = lease.claim_one(session, job_id, me())
            if held is not None:
                on_event = _reporter(report)
                _require_done(run_job(sessions, held, on_event=on_event, began=self._began))
                return
            with reading(sessions) as session:
                job = queue.get(session, job_id)
                if job.state in queue.ENDED:
                    _require_done(JobOutcome(_state(job), job.error or ""))
                    return
                done = sum(v for k, v in trials_json(session, job).items() if k != "asked")
                best = queue.best_trial(session, job_id)
                report(done, best.gflops if best else None)
            time.sleep(POLL_S)

    def _result(
        self, sessions: Sessions, problem: Problem, target: str, cache: CacheMode | None
    ) -> Json:
        with reading(sessions) as session:
            row = schedules.find_schedule(session, problem, target, cache=cache)
            if row is None:
                how = f" with cache={cache}" if cache else ""
                raise MissingError(
                    f"no schedule of {problem} is stored for {target}{how}; tilewise tune makes one"
                )
            return result_json(session, row, with_space=True)


def _reporter(report: Report) -> Any:
    def on_event(event: Event) -> None:
        if isinstance(event, TrialEnded):
            best = event.best.measurement if event.best else None
            report(event.trial.number + 1, best.gflops if best else None)

    return on_event


def _state(job: models.Job) -> Any:
    return job.state if job.state in ("done", "failed") else "interrupted"


def _require_done(outcome: JobOutcome) -> None:
    """Raise what stopped a job, as the error that the command line knows."""
    if outcome.cause is not None:
        raise outcome.cause
    if outcome.state != "done":
        raise TilewiseError(f"the job {outcome.state}: {outcome.message}")
