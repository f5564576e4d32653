"""The loop nest of a schedule: the one description that code generation, models and plots read.

`nest_of` gives the nest of a problem, steps rewrite it (`tilewise.kernels.steps`), `Nest.visit`
walks it. `interpreter.run` executes any nest in NumPy, which defines what it means.
"""

from tilewise.kernels.nest.access import Axis, Dim, Operand, Role, Term
from tilewise.kernels.nest.counts import Counts, count
from tilewise.kernels.nest.nest import Here, Nest
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
from tilewise.kernels.nest.printing import printed, text
from tilewise.kernels.nest.problems import nest_of
from tilewise.kernels.nest.shapes import halo, shape_of

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
    "text",
]
