"""Commands on this machine and its database."""

import logging
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING

from tilewise.backends.base import Known, OnTrialSeen, prediction_of
from tilewise.backends.service_errors import (
    converted_errors,
    database_of,
    opened_sessions,
    stored_sessions,
)
from tilewise.errors import BadInputError, MissingError, TilewiseError
from tilewise.kernels.footprint import check_memory
from tilewise.kernels.problem import Problem, ProblemRange, parse_any, parse_problem
from tilewise.kernels.range_schedule import RangeSchedule
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.system.toolchain import identity
from tilewise.schema.base import Json, Match
from tilewise.search.progress import OnPhase, ignore_phase
from tilewise.search.records import CacheMode, Solved, TuneRequest
from tilewise.service.api.documents import job_json, stored_trial_json, trial_json
from tilewise.service.api.range_documents import found_json
from tilewise.service.db import schema
from tilewise.service.db.session import Sessions, reading, writing
from tilewise.service.host.machine import examine_here
from tilewise.service.jobs import queue
from tilewise.service.results import integrity, predictions, scripts, suites, trials
from tilewise.service.results.stored import Lookup

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from tilewise.kernels.mlir.proof.proof import ScriptProof
    from tilewise.schema.results import Found, ObjectFiles, Text


def _proven(problem: Problem | ProblemRange, proof: "ScriptProof") -> str:
    """Return the script of a proof; raise TilewiseError if it failed."""
    if not proof.ok:
        why = proof.message.partition("\n")[0]
        raise TilewiseError(f"{problem}: no proof: {proof.failure}: {why}")
    return proof.script


class LocalBackend:
    """Searches here and keeps results in this machine's database."""

    def __init__(self, database_url: str | None, began: float | None = None) -> None:
        self._url = database_url
        self._began = began
        self._machine = examine_here()

    def __enter__(self) -> "LocalBackend":
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: each method has a database of its own."""

    def tune(
        self,
        problem: str,
        target: str,
        request: TuneRequest,
        on_trial: OnTrialSeen,
        on_phase: OnPhase = ignore_phase,
        *,
        again: bool = False,
    ) -> Json:
        """Answer from the store, wait for a running job, or run one."""
        from tilewise.backends.local_search import LocalSearch

        if request.spread > 1:
            raise BadInputError(
                f"--spread {request.spread} needs a service with a cluster, and this machine runs "
                "the search alone; give --server URL, or leave --spread out"
            )
        wanted = parse_any(problem)
        canonical = self._machine.require_served(target)
        check_memory(queue.check_covered(wanted, canonical))
        with opened_sessions(self._url) as sessions:
            search = LocalSearch(sessions, wanted, canonical, on_trial, on_phase, self._began)
            search.answer(request, again=again)
            return self._result(sessions, wanted, canonical, request.cache)

    def peak(self, problem: str, target: str) -> float | None:
        """Measure the peak, which takes some hundredths of a second."""
        from tilewise.kernels.native.microbench import peak_of
        from tilewise.kernels.target import resolve

        resolved = resolve(self._machine.require_served(target))
        return peak_of(resolved, parse_problem(problem))

    def show(
        self, problem: str, target: str, cache: CacheMode | None = None, *, match: Match = "exact"
    ) -> Json:
        """Return the stored result of a problem or a range, or raise MissingError.

        It is of a cache mode if one is given. With `match` `range` a range that contains it
        answers if nothing else is stored.
        """
        wanted = parse_any(problem)
        canonical = self._machine.canonical_target(target)
        with self._stored() as sessions:
            return self._result(sessions, wanted, canonical, cache, match)

    def predict(self, problem: str, target: str, trials: int = 0) -> Json:
        """Return a predicted schedule, its grade `predicted`, or raise MissingError."""
        if trials:
            raise BadInputError("--trials queues a search at a service; give --server URL, or tune")
        wanted, canonical = parse_problem(problem), self._machine.canonical_target(target)
        near: list[Solved] = []
        with suppress(MissingError), self._stored() as sessions, reading(sessions) as session:
            near = predictions.winners(session, [wanted], canonical)
        (found,) = predictions.predicted([wanted], canonical, near)
        return prediction_of(wanted, canonical, found)

    def script(self, problem: str, target: str, flavor: str, with_payload: bool) -> str:
        """Return the proven script or raise MissingError; that of a range is proven now."""
        wanted = parse_any(problem)
        canonical = self._machine.canonical_target(target)
        if flavor not in ("cpu", "iree-spec"):
            raise MissingError(
                f"no script of flavor={flavor} is stored; give cpu, air, iree or iree-spec"
            )
        if isinstance(wanted, ProblemRange):
            return self._range_script(wanted, canonical, flavor, with_payload)
        with self._stored() as sessions, reading(sessions) as session:
            found = scripts.find_script(session, wanted, Lookup(canonical, identity()), flavor)
            text = None if found is None else found.text
            if text is None and flavor == "cpu":
                text = self._script_of_range(session, wanted, canonical)
            if text is None:
                raise MissingError(
                    f"no proven {flavor} script of {wanted} is stored for {canonical}; "
                    "tilewise tune makes one"
                )
        if with_payload:
            from tilewise.kernels.mlir.transform.module import with_payload as joined

            return joined(wanted, text)
        return text

    def _range_script(
        self, wanted: ProblemRange, target: str, flavor: str, with_payload: bool
    ) -> str:
        """Prove the script of a range, and return it."""
        if flavor != "cpu":
            raise BadInputError(f"{wanted}: flavor {flavor} has no script of a range; give cpu")
        found = self.show(wanted.canonical, target)
        steps = [variant["steps"] for variant in found["variants"]]
        schedule = RangeSchedule.from_json(wanted, {**found, "variants": steps})
        from tilewise.kernels.mlir.cpu.range_script import range_payload
        from tilewise.kernels.mlir.proof.prove import prove_range
        from tilewise.kernels.mlir.transform.module import with_function
        from tilewise.kernels.target import resolve
        from tilewise.search.transfer.scripted import range_in_lines

        script = _proven(wanted, prove_range(range_in_lines(schedule, resolve(target))))
        return with_function(range_payload(schedule), script) if with_payload else script

    def _script_of_range(self, session: "Session", problem: Problem, target: str) -> str | None:
        """Return the script of a range's variant, proven now; None if a schedule is stored."""
        found = found_json(session, problem, Lookup(target, identity(), match="range"))
        if found is None or found["match"]["range"] is None:
            return None
        from tilewise.kernels.mlir.proof.prove import prove
        from tilewise.kernels.target import resolve
        from tilewise.search.transfer.scripted import in_lines
        from tilewise.service.workers.proving import PROOF_LIMIT_S

        sys.stderr.write(f"tilewise: proves the variant of {found['match']['range']}\n")
        best = Schedule.from_json(found["best"]["steps"])
        schedule = in_lines(problem, resolve(target), best)
        return _proven(problem, prove(problem, schedule, seconds=PROOF_LIMIT_S))

    def kernel(self, problem: str, target: str) -> str:
        """Print the module now; that of a range serves all its sizes."""
        found = self.show(problem, target, match="range")
        from tilewise.kernels.native.objects.document import python_module

        return python_module(found)

    def object_files(
        self, problem: str, target: str, cache: CacheMode | None = None
    ) -> "ObjectFiles":
        """Compile and prove the object now; that of a range serves all its sizes."""
        found = self.show(problem, target, cache, match="range")
        from tilewise.kernels.native.objects.document import proven_document
        from tilewise.schema.base import read
        from tilewise.schema.results import ObjectFiles

        return read(ObjectFiles, proven_document(found))

    def trials(self, problem: str, target: str) -> list[Json]:
        """Return every stored trial of the problem or raise MissingError."""
        wanted = parse_problem(problem)
        canonical = self._machine.canonical_target(target)
        with self._stored() as sessions, reading(sessions) as session:
            found = trials.find_trials(session, problem=wanted, target=canonical)
            rows = [stored_trial_json(*row) for row in found]
        if not rows:
            raise MissingError(f"no trials of {wanted} are stored for {canonical}")
        return rows

    def job(self, number: int) -> Json:
        """Return a job as it is now, or raise an error."""
        with self._stored() as sessions, reading(sessions) as session:
            return job_json(session, queue.get(session, number))

    def job_trials(self, number: int) -> list[Json]:
        """Return the finished trials of a job, by number."""
        with self._stored() as sessions, reading(sessions) as session:
            queue.get(session, number)
            return list(map(trial_json, queue.trials_page(session, number)))

    def look_up(
        self,
        problems: Sequence[str],
        target: str,
        files: Sequence[str],
        known: Known,
        match: Match = "exact",
        cache: CacheMode | None = None,
    ) -> "list[Found]":
        """Look all problems up in the database; without one, nothing is stored."""
        from tilewise.backends.local_files import look_up, nothing

        with converted_errors():
            if schema.is_absent(database_of(self._url)):
                return nothing(problems, files)
        with self._stored() as sessions:
            work = Lookup(self._machine.canonical_target(target), identity(), cache, match)
            return look_up(sessions, work, problems, files, known)

    def text(self, found: "Found", kind: str) -> "Text":
        """Return the text; kernels and air scripts are made now."""
        from tilewise.backends.local_files import text

        with self._stored() as sessions:
            return text(sessions, found, kind)

    def submit(self, problem: str, target: str, request: TuneRequest) -> None:
        """Do nothing: searches run one after another here."""

    def store_report(self, report: Json) -> int:
        """Store a suite's report; return its number."""
        from tilewise.service.api.suite_reports import SuiteReport

        try:
            checked = SuiteReport.checked(report).document()
        except ValueError as error:
            raise BadInputError(str(error)) from error
        with opened_sessions(self._url) as sessions, writing(sessions) as session:
            row, _ = suites.keep(session, checked)
            session.flush()
            return row.id

    def _stored(self) -> AbstractContextManager[Sessions]:
        """Open the database for reading without creating it."""
        # A refused row is logged too; here the error, in one line, is all that a user needs.
        logging.getLogger(integrity.__name__).addHandler(logging.NullHandler())
        return stored_sessions(self._url)

    def _result(
        self,
        sessions: Sessions,
        problem: Problem | ProblemRange,
        target: str,
        cache: CacheMode | None,
        match: Match = "exact",
    ) -> Json:
        lookup = Lookup(target, identity(), cache, match)
        with reading(sessions) as session:
            if (found := found_json(session, problem, lookup)) is not None:
                return found
            how = f" with cache={cache}" if cache else ""
            raise MissingError(
                f"no schedule of {problem} is stored for {target}{how}; tilewise tune makes one"
            )
