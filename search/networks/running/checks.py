"""Whether a plan is of a program, node by node, and whether each op is one that runs here."""

from tilewise.kernels.mlir.frontend.graph import Node, Use
from tilewise.kernels.mlir.frontend.program import Program
from tilewise.search.errors import NetworkError
from tilewise.search.networks.plan import Plan, PlannedNode, PlannedUse


def check(plan: Plan, program: Program) -> None:
    """Refuse a plan of another module, and an op that does not run here.

    Raises:
        NetworkError: names the first node or tensor.
    """
    _check_same(plan, program)
    check_ops(program)


def check_ops(program: Program) -> None:
    """Refuse a program with an op that does not run here, before there is a plan of it.

    Raises:
        NetworkError: names the first op.
    """
    outline = program.outline
    for node, action in zip(outline.graph.nodes, outline.actions, strict=True):
        if action.refused:
            is_pool = node.kind == "pool"  # whose reason says that it multiplies nothing
            raise refused(node, action.refused if is_pool else node.reason or action.refused)


def refused(node: Node | PlannedNode, reason: str) -> NetworkError:
    """What is said of a node that does not run here."""
    place = node.where.rpartition(" ")[0]
    return NetworkError(f"{node.op} at {place} {reason}; `tilewise model` runs the whole model")


def _check_same(plan: Plan, program: Program) -> None:
    graph = program.outline.graph
    counts = len(plan.nodes), len(plan.tensors)
    if counts != (len(graph.nodes), len(graph.tensors)):
        told = f"{len(graph.nodes)} and {len(graph.tensors)}; make the plan again"
        raise NetworkError(
            f"the plan has {counts[0]} nodes and {counts[1]} tensors, the module {told}"
        )
    for number, (node, own) in enumerate(zip(plan.nodes, graph.nodes, strict=True)):
        first = None if node.found is None else node.found.problem
        second = None if own.found is None else own.found.with_accuracy(plan.accuracy).problem
        uses = (*node.reads, *node.makes), (*own.reads, *own.makes)
        if (node.op, first) != (own.op, second) or list(map(_told, uses[0])) != list(
            map(_told, uses[1])
        ):
            raise NetworkError(f"node {number} of the plan is {first or node.op}, that of the "
                               f"module {second or own.op}; make the plan again")  # fmt: skip
    for number, (tensor, its) in enumerate(zip(plan.tensors, graph.tensors, strict=True)):
        if (tensor.shape, tensor.dtype, tensor.is_given, tensor.is_result) != (
            its.shape, its.dtype, its.is_given, its.is_result
        ):  # fmt: skip
            raise NetworkError(f"tensor {number} of the plan is not the module's; make it again")


def _told(use: Use | PlannedUse) -> tuple[object, ...]:
    return use.tensor, use.shape, use.role
