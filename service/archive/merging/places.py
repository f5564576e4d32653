"""What results refer to, taken into a store: problems, toolchains, machines; suites and models."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from tilewise.kernels.problem import parse_problem
from tilewise.search.records import TuneRequest
from tilewise.service.archive.lines import (
    MachineLine,
    ModelLine,
    ProblemLine,
    SuiteLine,
    ToolchainLine,
)
from tilewise.service.archive.merging.merged import Merged, Numbers
from tilewise.service.db import models
from tilewise.service.db.rows import problem_row, toolchain_row
from tilewise.service.jobs.model_jobs import end_at_once, model_job
from tilewise.service.jobs.queue import Submitter
from tilewise.service.results import suites

_FACTS = (
    *("cpu", "cores", "memory_bytes", "caches", "features"),
    *("peaks", "bandwidth_gbs", "peaks_at", "seen_at"),
)


def add_problem(session: Session, line: ProblemLine, numbers: Numbers, merged: Merged) -> None:
    """Take in a problem, which was asked for when any store was first asked for it."""
    problem = parse_problem(line.problem)
    known = session.scalar(select(models.Problem.id).where(models.Problem.key == problem.key))
    row = problem_row(session, problem)
    row.created_at = min(row.created_at, line.created_at)
    session.flush()
    merged.count("problems", is_new=known is None)
    numbers.problems[line.problem] = row.id


def add_toolchain(session: Session, line: ToolchainLine, numbers: Numbers, merged: Merged) -> None:
    """Take in a toolchain, as a problem."""
    named = models.Toolchain.identity == line.toolchain
    known = session.scalar(select(models.Toolchain.id).where(named))
    row = toolchain_row(session, line.toolchain)
    row.created_at = min(row.created_at, line.created_at)
    session.flush()
    merged.count("toolchains", is_new=known is None)
    numbers.toolchains[line.toolchain] = row.id


def add_machine(session: Session, line: MachineLine, numbers: Numbers, merged: Merged) -> None:
    """Take in a machine; of two of one host, the facts of the one that was seen later stay."""
    row = session.scalar(select(models.Machine).where(models.Machine.host == line.host))
    is_new = row is None
    if row is None:
        row = models.Machine(host=line.host)
        session.add(row)
    if is_new or line.seen_at > row.seen_at:
        for name in _FACTS:
            setattr(row, name, getattr(line, name))
    session.flush()
    merged.count("machines", is_new=is_new)
    numbers.machines[line.host] = row.id


def add_suite(session: Session, line: SuiteLine, merged: Merged, target: str) -> None:
    """Take in a report of a suite, which its SHA-256 names, as one of a target."""
    row, is_new = suites.keep(session, line.report)
    if is_new:
        row.created_at, row.target = line.created_at, target
    session.flush()
    session.expunge(row)
    merged.count("suites", is_new=is_new)


def add_model(session: Session, line: ModelLine, numbers: Numbers, merged: Merged) -> None:
    """Take in a model, which its module and the moment name."""
    known = (
        select(models.Network.id)
        .join(models.Network.job)
        .where(
            models.Network.sha256 == line.sha256,
            models.Job.target == line.target,
            models.Job.created_at == line.created_at,
        )
    )
    is_new = session.scalar(known.limit(1)) is None
    if is_new:
        request, toolchain_id = TuneRequest(cache=line.cache), numbers.toolchains[line.toolchain]
        job = model_job(request, line.target, toolchain_id, Submitter())
        job.trials = line.trials
        end_at_once(job, line.created_at)
        own = {"sha256": line.sha256, "problems": line.problems, "skipped": line.skipped}
        session.add(models.Network(job=job, **own))
    merged.count("models", is_new=is_new)
