"""A plan of a network: what computes each node, and the layout of each tensor.

Its JSON form is stable: a field that goes or changes its meaning requires another `SCHEMA`.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewise.kernels.mlir.frontend.graph import NodeKind, Occurrence, Tensor, TensorUse
from tilewise.kernels.problem import Accuracy
from tilewise.kernels.system.typed_json import from_json, to_json
from tilewise.search.networks.costs import Timed
from tilewise.search.networks.variants import TensorLayout

SCHEMA = "tilewise/plan/1"


@dataclass(frozen=True)
class PlannedUse(TensorUse):
    """A tensor as a node reads or makes it, with the required layout."""

    layout: TensorLayout


@dataclass(frozen=True)
class PlannedNode:
    """A node and what computes it.

    Attributes:
        found: the problem as the model has it; None for other ops.
        place: number of a contraction among the module's problems, from 1.
        problem: what is computed: `found`, or one that differs in layout and padding alone.
        schedule: of that problem; None if it was not tuned.
        reason: why the node is planned around; empty if it is not.
    """

    kind: NodeKind
    op: str
    where: str
    reads: tuple[PlannedUse, ...]
    makes: tuple[PlannedUse, ...]
    found: Occurrence | None
    place: int | None
    problem: str | None
    schedule: Timed | None
    reason: str


@dataclass(frozen=True)
class PlannedTensor(Tensor):
    """A tensor between nodes, in the layout in which it is made."""

    layout: TensorLayout


@dataclass(frozen=True)
class PlannedConversion:
    """A copy of a tensor in another layout, for all nodes that want it."""

    tensor: int
    layout: TensorLayout
    time_us: float


@dataclass(frozen=True)
class PlannedPass:
    """A non-GEMM pass over memory for one or several nodes.

    Tensors between its nodes are never stored.
    """

    nodes: tuple[int, ...]
    label: str
    time_us: float


@dataclass(frozen=True)
class Totals:
    """Times of all tuned nodes, conversions and passes, in microseconds.

    `plain_us` uses the model's layouts. `alone_us` has each node's fastest schedule, with the
    conversions that this requires.
    """

    chosen_us: float
    plain_us: float
    alone_us: float


@dataclass(frozen=True)
class Plan:
    """A planned network.

    Attributes:
        cache: how the schedules were tuned, hot or cold. Layers with constant weights are timed
            again with cold ones, unless stored times are requested.
        is_exact: whether the choice is optimal; otherwise there were too many to compare all.
        nodes: in an executable order.
        passes: timed non-GEMM passes, in order.
    """

    schema: str
    model: str
    target: str
    cache: str
    is_exact: bool
    nodes: tuple[PlannedNode, ...]
    tensors: tuple[PlannedTensor, ...]
    conversions: tuple[PlannedConversion, ...]
    totals: Totals
    passes: tuple[PlannedPass, ...] = ()
    accuracy: Accuracy = "standard"

    def to_json(self) -> dict[str, Any]:
        """Return the object that `tilewise plan --json` prints."""
        return to_json(self)

    @classmethod
    def from_json(cls, source: object) -> "Plan":
        """Parse a plan; raise ValueError for another form or schema."""
        given = source.get("schema") if isinstance(source, dict) else None
        if given != SCHEMA:
            raise ValueError(f"schema={given!r} is not {SCHEMA}; make the plan again")
        return from_json(cls, source, tolerant=True)


_TEMPLATE = Path(__file__).with_name("templates") / "plan_module.py.tmpl"


def runner_text(plan: dict[str, Any], sha256: str) -> str:
    """Return a module with a plan and with `load`, which returns its network.

    `load` refuses a module of another hash than `sha256`.
    """
    # JSON is ASCII here, and without apostrophes no text in it ends the literal.
    document = json.dumps(plan, indent=1, allow_nan=False).replace("'", "\\u0027")
    text = _TEMPLATE.read_text(encoding="utf-8")
    return text.replace("$sha256", sha256).replace("$plan", document)
