"""Make a plan on a machine of its target: time, choose, prove the pack script.

It loads compilers, and MLIR in children of its own, so it runs in the child of a worker that has
claimed the job.
"""

import logging
from collections.abc import Callable
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING

from tilewise.kernels.errors import CompilerAbsentError, KernelsError, ModuleError, ProofError
from tilewise.kernels.mlir.frontend.read import ReadLimits
from tilewise.kernels.quoting import one_line
from tilewise.kernels.target import resolve
from tilewise.schema.base import Json
from tilewise.search.errors import SearchError
from tilewise.search.networks.costs import LayerTimes
from tilewise.service.errors import DamagedError, PlanError
from tilewise.service.jobs.plans import (
    CHOOSING,
    PROVING,
    Made,
    PackOutcome,
    PlanAssignment,
    PlanPhase,
)
from tilewise.service.runs.http import HttpPlanStore
from tilewise.service.runs.sql import SqlPlanStore

if TYPE_CHECKING:
    from tilewise.search.networks.pass_times import PassTimes

LIMITS = ReadLimits(seconds=600.0, memory_bytes=8 << 30)
"""Of the child that packs a module, and of the one that runs it."""
LONGEST = 1000  # characters of why there is no script

Note = Callable[[PlanPhase, Json | None], None]
"""Takes a phase that begins, and the plan once it is chosen."""

log = logging.getLogger(__name__)


def run_claimed(
    store: SqlPlanStore | HttpPlanStore, make: Callable[[PlanAssignment, bytes, Note], Made]
) -> None:
    """Make and store the plan of a claimed job; give the job back if interrupted.

    Raises LeaseLostError if another run has the job, DatabaseError or UnreachableError if the
    database or the service is away for long.
    """
    try:
        with store.beating():
            made = make(*store.assignment(), store.note)
    except (KernelsError, SearchError, PlanError, DamagedError) as error:
        is_ours, state = store.failed(str(error)), "failed"
    except (KeyboardInterrupt, SystemExit):
        store.release()
        raise
    else:
        is_ours, state = store.done(made), "done"
    log.info("%s", state if is_ours else "it was cancelled or taken over meanwhile")


def make(assignment: PlanAssignment, module: bytes, note: Note) -> Made:
    """Choose the plan of an assignment, unless an earlier run has, and prove its pack script.

    Raises PlanError if no layer has a schedule; KernelsError or SearchError if the target cannot be
    resolved or copies not be timed here.
    """
    from tilewise.search.runner.processors import timing_alone

    plan, target = assignment.plan, assignment.request.target
    if plan is None:
        note(CHOOSING, None)
        with timing_alone(target):
            plan = chosen(assignment, module)
    note(PROVING, plan)
    return Made(plan, packed(target, module))


def chosen(assignment: PlanAssignment, module: bytes) -> Json:
    """Return the fastest plan, after timing layers, passes and copies here.

    Raises PlanError if no layer has a schedule.
    """
    from tilewise.search.networks.cold_weights import timed_cold, weights_bytes
    from tilewise.search.networks.pass_times import conversion_us
    from tilewise.search.networks.planning import planned

    request = assignment.request
    if not any(
        node.found and node.found.problem in assignment.schedules for node in assignment.graph.nodes
    ):
        raise PlanError(
            "no layer has a stored schedule, since every search has failed or was cancelled; "
            "their jobs say why"
        )
    copies = partial(conversion_us, request.target)
    stored = LayerTimes(lambda problem: assignment.schedules.get(problem, ()), copies)
    costs = timed_cold(stored, resolve(request.target), weights_bytes(assignment.graph))
    plan = planned(assignment.graph, costs, request, _passes(assignment, module)).to_json()
    if not all(map(isfinite, plan["totals"].values())):
        raise PlanError("a copy between layouts cannot be compiled; request layouts=model")
    return plan


def _passes(assignment: PlanAssignment, module: bytes) -> "PassTimes | None":
    """Times of passes, where the module is one that runs here."""
    from tilewise.kernels.mlir.frontend.read import read_outline
    from tilewise.search.networks.pass_times import PassTimes

    try:
        outline = read_outline(module, LIMITS)
    except ModuleError as error:  # it was read once: this host has less memory, or is slower
        log.warning(
            "plan %d: its passes are not timed: %s", assignment.plan_id, one_line(str(error))
        )
        return None
    if outline.refused:
        return None
    outline = outline.with_accuracy(assignment.request.accuracy)
    if outline.graph != assignment.graph:  # another version has read it
        return None
    return PassTimes(outline, resolve(assignment.request.target))


def packed(target: str, module: bytes) -> PackOutcome:
    """Return the proven script that packs a whole module, or why there is none."""
    from tilewise.kernels.mlir.network.pack import pack_module, prove_packs
    from tilewise.kernels.mlir.network.packing import Blocks

    try:
        plan = pack_module(module, Blocks(channels=resolve(target).lanes("f32")), LIMITS)
        if not plan.packed:
            why = f"; {plan.left[0].where} {plan.left[0].reason}" if plan.left else ""
            return _without(f"the module has no op that can be packed{why}")
        proof = prove_packs(plan, limits=LIMITS)
    except (ModuleError, ProofError, CompilerAbsentError) as error:
        return _without(str(error))
    if not proof.ok:
        return _without(f"the script did not prove: {proof.failure}: {proof.message}")
    document = {
        "max_error": proof.max_error, "tolerance": proof.tolerance, "mlir": proof.mlir,
        **plan.counts,
    }  # fmt: skip
    return PackOutcome(proof.script, document)


def _without(why: str) -> PackOutcome:
    return PackOutcome(error=one_line(why)[:LONGEST])
