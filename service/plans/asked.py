"""Plans that are asked for, or called off: what is wanted, and the plan that comes of it."""

import hashlib
import json
import zlib
from dataclasses import asdict, dataclass

from sqlalchemy import Select, func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, undefer

from tilewise.kernels.mlir.frontend.graph import Graph
from tilewise.kernels.problem import Accuracy, parse_problem
from tilewise.kernels.system.typed_json import to_json
from tilewise.schema.base import PlanLayouts
from tilewise.search.networks.variants import problems_of
from tilewise.search.records import TuneRequest
from tilewise.service.db import models
from tilewise.service.db.rows import toolchain_row
from tilewise.service.errors import TooManyJobsError, UndoneError
from tilewise.service.jobs import queue
from tilewise.service.jobs.queue import Submitter
from tilewise.service.leases.calling_off import is_to_call_off
from tilewise.service.plans import lease, rows
from tilewise.service.plans.rows import ACTIVE

LEVEL = 1  # of zlib: dense weights in hex shrink to about half at any level


@dataclass(frozen=True)
class Wanted:
    """A plan to make.

    Attributes:
        sha256: of the module, hex.
        name: what the model is called.
        module: compressed, by `compressed`.
        graph: of the module.
        layouts: which are offered.
        target: canonical.
        request: how hard to search for each problem.
        accuracy: of the graph's problems.
    """

    sha256: str
    name: str
    module: bytes
    graph: Graph
    layouts: PlanLayouts
    target: str
    request: TuneRequest
    accuracy: Accuracy

    @property
    def digest(self) -> str:
        """SHA-256 of what is asked for, hex."""
        asked = ["plan", self.sha256, self.name, self.layouts, self.target, asdict(self.request)]
        if self.accuracy != "standard":  # as a service said it that knew of no other
            asked.append(self.accuracy)
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()

    @property
    def problems(self) -> tuple[str, ...]:
        """Every problem that is tuned for it: the model's, then those in other layouts."""
        own = (found.problem for found in self.graph.layers)
        return tuple(dict.fromkeys((*own, *problems_of(self.graph, self.layouts))))


def compressed(module: bytes) -> bytes:
    """A module as its row keeps it."""
    return zlib.compress(module, LEVEL)


def ask(session: Session, wanted: Wanted, toolchain: str, by: Submitter) -> models.Plan:
    """Join the active plan of the same, or queue what the store does not answer and make a plan.

    Args:
        session: a transaction that writes.
        wanted: the plan.
        toolchain: the present one.
        by: who asks; a plan that is joined stays with whoever asked first.

    Raises:
        TooManyJobsError: a token has as many plans or jobs in flight as it may.
    """
    active = _active(wanted, toolchain)
    # Locked on a server, where its end could come between.
    same = session.scalar(active.with_for_update(of=models.Plan))
    if same is not None and not lease.fail_damaged(session, same):
        return same
    _require_room(session, by)
    jobs = {}
    for problem in wanted.problems:
        submitted = queue.create_or_join(
            session, parse_problem(problem), wanted.target, wanted.request, toolchain, by
        )
        jobs[problem] = None if submitted.job is None else submitted.job.id
    own = [asdict(found) for found in wanted.graph.layers]
    known = {found["problem"] for found in own}
    made = models.Plan(
        sha256=wanted.sha256,
        name=wanted.name,
        target=wanted.target,
        toolchain=toolchain_row(session, toolchain),
        trials=wanted.request.trials,
        seed=wanted.request.seed,
        cache=wanted.request.cache,
        layouts=wanted.layouts,
        accuracy=wanted.accuracy,
        problems=[{**found, "job": jobs[found["problem"]]} for found in own],
        variants=[
            {"problem": problem, "job": job}
            for problem, job in jobs.items()
            if problem not in known
        ],
        skipped=[asdict(one) for one in wanted.graph.skipped],
        source=models.PlanSource(graph=to_json(wanted.graph), module=wanted.module),
        state="queued",
        token_id=by.token_id,
        request_id=by.request_id,
    )
    try:
        with session.begin_nested():
            session.add(made)
    except IntegrityError:  # another request for the same plan was first
        first = session.scalars(active).one_or_none()
        if first is None:  # and has ended since
            raise UndoneError("another request for the same plan was first, and ended") from None
        return first
    return made


def cancel(session: Session, number: int, only_of: int | None = None) -> models.Plan:
    """Call a plan off; who makes it sees that and stops. Twice is as good as once.

    Its jobs go on, as those of a model do: others may have joined them.

    Args:
        session: a transaction that writes.
        number: the plan's.
        only_of: the token that must have asked for it first; None for whoever.

    Raises:
        NotFoundError, DamagedError: as `rows.get`.
        ForbiddenError: another token has asked for it.
        ConflictError: it has ended.
    """
    plan = rows.get(session, number, models.Plan.plan, lock=True)
    if is_to_call_off("plan", plan, only_of):
        lease.call_off(plan)
    return plan


def _active(wanted: Wanted, toolchain: str) -> Select[models.Plan]:
    """The plan that waits or is made and will be what is wanted."""
    plan, request = models.Plan, wanted.request
    return (
        select(plan)
        .join(plan.toolchain)
        .where(
            plan.state.in_(ACTIVE),
            plan.sha256 == wanted.sha256,
            plan.name == wanted.name,
            plan.target == wanted.target,
            models.Toolchain.identity == toolchain,
            plan.trials == request.trials,
            plan.seed == request.seed,
            plan.cache == request.cache,
            plan.layouts == wanted.layouts,
            plan.accuracy == wanted.accuracy,
        )
        .options(undefer(plan.plan))
    )


def _require_room(session: Session, by: Submitter) -> None:
    """Raise TooManyJobsError where a token has as many plans in flight as it may have jobs."""
    if by.token_id is None or not by.most_in_flight:
        return
    query = select(func.count()).where(
        models.Plan.token_id == by.token_id, models.Plan.state.in_(ACTIVE)
    )
    if (session.scalar(query) or 0) >= by.most_in_flight:
        raise TooManyJobsError(
            f"{by.most_in_flight} plans of this token wait or are made, the most that may; "
            "ask again when one has ended"
        )
