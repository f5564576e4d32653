"""Plans made by hand, small enough to count by eye."""

from dataclasses import replace

from tilewise.kernels.mlir.frontend.graph import Arrangement, Occurrence
from tilewise.search.networks import plan as plans
from tilewise.search.networks.costs import Timed
from tilewise.search.networks.plan import Plan, PlannedNode, PlannedTensor, PlannedUse
from tilewise.search.networks.variants import TensorLayout, plain

TARGET = "cpu:znver5,threads=1"
SHAPE = (1, 8, 10, 10)
PLAIN, LAST = plain(SHAPE), TensorLayout((2, 3, 1))
HALO = TensorLayout((2, 3, 1), 1, (2, 3))
CONV = "conv2d:n=1,h=10,w=10,ci=8,co=8,kh=3,kw=3,pad=1,dtype=f32,bias,weights=constant"
WAY = Arrangement((0, 1, 2, 3), SHAPE, False)


def use(tensor: int, layout: TensorLayout = PLAIN, role: str = "A") -> PlannedUse:
    """A tensor of `SHAPE` as a node has it."""
    return PlannedUse(tensor, SHAPE, role, layout)


def layer(
    reads: tuple[PlannedUse, ...], made: PlannedUse, time_us: float, algorithm: str = "direct",
    fused: tuple[str, ...] = ("pad", "bias"), where: str = "@main 5:3 linalg.conv_2d_nchw_fchw",
) -> PlannedNode:  # fmt: skip
    """A convolution with a schedule."""
    op = "linalg.conv_2d_nchw_fchw"
    found = Occurrence(CONV, op, where, WAY, WAY, WAY, False, fused)
    timed = Timed(algorithm, "0123456789ab", (), time_us)
    return PlannedNode(
        "contraction", op, where, reads, (replace(made, role="C"),), found, 1, CONV, timed, ""
    )


def other(reads: tuple[PlannedUse, ...], made: PlannedUse, reason: str = "") -> PlannedNode:
    """An op that nobody tunes."""
    op, unknown = "linalg.softmax", (None,) * 4
    return PlannedNode("other", op, f"@main 9:3 {op}", reads, (made,), *unknown, reason)


def tensor(
    layout: TensorLayout = PLAIN, *, given: bool = False, result: bool = False
) -> PlannedTensor:
    """A tensor of `SHAPE`."""
    return PlannedTensor(SHAPE, "f32", given, result, layout)


def block(model: str = "block.mlir") -> Plan:
    """An op that nobody times, a copy that two layers read, a halo, a residual, a last copy."""
    nodes = (
        other((use(0, role="whole"),), use(1, role="whole"), "is no product"),
        layer((use(1, LAST),), use(2, LAST), 30.0),
        layer((use(2, HALO),), use(3, LAST), 50.0, "winograd F4", ("pad", "bias", "relu")),
        layer((use(3, LAST), use(1, LAST, "C")), use(4, LAST), 10.0, fused=("bias", "addition")),
    )
    tensors = (
        tensor(given=True), tensor(), tensor(LAST), tensor(LAST), tensor(LAST, result=True),
    )  # fmt: skip
    copies = tuple(
        plans.PlannedConversion(*one) for one in ((1, LAST, 4.0), (2, HALO, 2.0), (4, PLAIN, 4.0))
    )
    totals = plans.Totals(100.0, 120.0, 105.0)
    return Plan(plans.SCHEMA, model, TARGET, "hot", True, nodes, tensors, copies, totals)


def attention() -> Plan:
    """Three layers that read one tensor, and an op that reads all three: a wide graph."""
    layers = tuple(layer((use(0),), use(i), 10.0 * i) for i in (1, 2, 3))
    nodes = (*layers, other((use(1), use(2), use(3), use(0)), use(4)))
    tensors = (tensor(given=True), tensor(), tensor(), tensor(), tensor(result=True))
    totals = plans.Totals(60.0, 60.0, 60.0)
    return Plan(plans.SCHEMA, "wide.mlir", TARGET, "hot", True, nodes, tensors, (), totals)
