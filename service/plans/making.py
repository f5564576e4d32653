"""Making a plan on a machine of its target: times taken, all chosen, the pack script proven.

It loads compilers, and MLIR in children of its own; so it runs in a child of a worker.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any

from tilewise.kernels.errors import CompilerAbsentError, ModuleError, ProofError
from tilewise.kernels.mlir.frontend.read import Limits
from tilewise.kernels.quoting import one_line
from tilewise.kernels.target import resolve
from tilewise.search.networks.costs import Timed
from tilewise.search.networks.variants import Layout
from tilewise.service.errors import PlanError
from tilewise.service.plans.orders import Order

if TYPE_CHECKING:
    from tilewise.search.networks.costs import CopyTimes
    from tilewise.search.networks.pass_times import PassTimes

log = logging.getLogger(__name__)
Json = dict[str, Any]
LIMITS = Limits(seconds=600.0, memory_bytes=8 << 30)
"""Of the child that packs a module, and of the one that runs it."""
LONGEST = 1000  # characters of why there is no script

CHOOSING, PROVING = "choosing", "proving"
Tell = Callable[[str, Json | None], None]
"""Told of a phase, and of the plan once it is chosen."""


@dataclass(frozen=True)
class Packed:
    """What became of the pack script of a module.

    Attributes:
        script: with its proof in its header; None where there is none.
        proof: as the row of a plan has it.
        error: why there is no script; None where there is one.
    """

    script: str | None = None
    proof: Json | None = None
    error: str | None = None


@dataclass(frozen=True)
class Made:
    """A plan that was made: `tilewise/plan/1`, and the script that packs its module."""

    plan: Json
    packed: Packed


def make(order: Order, module: bytes, tell: Tell) -> Made:
    """Choose the plan of an order, unless an earlier run has, and prove its pack script.

    Raises:
        PlanError: no layer has a schedule.
        KernelsError, SearchError: the target cannot be resolved here, or copies not be timed.
    """
    from tilewise.search.runner.processors import timing_alone

    plan = order.plan
    if plan is None:
        tell(CHOOSING, None)
        with timing_alone(order.target):
            plan = chosen(order, module)
    tell(PROVING, plan)
    return Made(plan, packed(order.target, module))


def chosen(order: Order, module: bytes) -> Json:
    """The plan of the least time: layers are timed here again, passes, and copies on one thread.

    Raises:
        PlanError: no layer has a schedule.
    """
    from tilewise.search.networks.cold_weights import Retimed, weights_bytes
    from tilewise.search.networks.costs import CopyTimes
    from tilewise.search.networks.planning import Named, planned

    if not any(node.found and node.found.problem in order.schedules for node in order.graph.nodes):
        raise PlanError(
            "no layer has a stored schedule, since every search has failed or was cancelled; "
            "their jobs say why"
        )
    named = Named(order.name, order.target, order.cache, order.accuracy)
    costs = Retimed(_Costs(order, CopyTimes()), resolve(order.target), weights_bytes(order.graph))
    plan = planned(order.graph, costs, named, order.layouts, _passes(order, module)).to_json()
    if not all(map(isfinite, plan["totals"].values())):
        raise PlanError("a copy between layouts cannot be made; ask with layouts=model")
    return plan


def _passes(order: Order, module: bytes) -> "PassTimes | None":
    """Times of passes, where the module is one that runs here."""
    from tilewise.kernels.mlir.frontend.read import read_outline
    from tilewise.search.networks.pass_times import PassTimes

    try:
        outline = read_outline(module, LIMITS)
    except ModuleError as error:  # it was read once: this host has less memory, or is slower
        log.warning("plan %d: its passes are not timed: %s", order.plan_id, one_line(str(error)))
        return None
    if outline is None:
        return None
    outline = outline.with_accuracy(order.accuracy)
    if outline.graph != order.graph:  # another version has read it
        return None
    return PassTimes(outline, resolve(order.target))


def packed(target: str, module: bytes) -> Packed:
    """The script that packs a whole module, applied, run and compared; or why there is none."""
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
    told = {
        "max_error": proof.max_error, "tolerance": proof.tolerance, "mlir": proof.mlir,
        **plan.counts,
    }  # fmt: skip
    return Packed(proof.script, told)


def _without(why: str) -> Packed:
    return Packed(error=one_line(why)[:LONGEST])


@dataclass(frozen=True)
class _Costs:
    """Stored times of an order's layers, and of copies as this machine makes them."""

    order: Order
    copies: "CopyTimes"

    def schedules(self, problem: str) -> tuple[Timed, ...]:
        """As the order has them."""
        return self.order.schedules.get(problem, ())

    def conversion_us(
        self, shape: tuple[int, ...], dtype: str, made: Layout, wanted: Layout
    ) -> float:
        """Measured when it is asked for first."""
        return self.copies.of(shape, dtype, made, wanted)
