"""The loop nest of a schedule: the IR that code generation, cost models and plots read.

`nest_of` returns the nest of a problem, steps rewrite it (`tilewise.kernels.steps`), `Nest.visit`
yields its nodes. `interpreter.Interpreter` executes any nest in NumPy, which defines what it means.
"""

from tilewise.kernels.nest.access import Axis, Dim, Operand, Role, Term
from tilewise.kernels.nest.counts import Counts, count
from tilewise.kernels.nest.nest import Here, Nest, halo, printed, shape_of
from tilewise.kernels.nest.nodes import (
    Algorithm,
    Compute,
    Fetch,
    Fetched,
    Layout,
    Loop,
    LoopKind,
    MicroTile,
    Node,
    Stage,
    Store,
)
from tilewise.kernels.nest.problems import nest_of

__all__ = [
    "Algorithm",
    "Axis",
    "Compute",
    "Counts",
    "Dim",
    "Fetch",
    "Fetched",
    "Here",
    "Layout",
    "Loop",
    "LoopKind",
    "Nest",
    "Node",
    "Operand",
    "Role",
    "Stage",
    "Store",
    "Term",
    "MicroTile",
    "count",
    "halo",
    "nest_of",
    "printed",
    "shape_of",
]
