"""A plan of a network: for each node what computes it, for each tensor how it lies in memory.

A plan is a value with a stable JSON form. `SCHEMA` names its version; a field that goes or changes
its meaning makes another one.
"""

from dataclasses import dataclass
from typing import Any

from tilewise.kernels.mlir.frontend.graph import NodeKind, Occurrence, Size
from tilewise.kernels.problem import Accuracy
from tilewise.kernels.system.typed_json import from_json, to_json
from tilewise.search.networks.costs import Timed
from tilewise.search.networks.layouts import Layout

SCHEMA = "tilewise/plan/1"


@dataclass(frozen=True)
class PlannedUse:
    """A tensor as a node reads or makes it.

    Attributes:
        tensor: its number.
        shape: in which the node has it.
        role: as of `tilewise.kernels.mlir.frontend.graph.Use`.
        layout: in which it has to lie, in terms of the tensor's own axes.
    """

    tensor: int
    shape: tuple[Size, ...]
    role: str
    layout: Layout


@dataclass(frozen=True)
class PlannedNode:
    """A node and what computes it.

    Attributes:
        kind, op, where: as of the graph.
        reads, makes: its tensors.
        found: the problem as the model has it, and what it takes in; None for other ops.
        place: of a contraction, its number among the problems of the module, from 1.
        problem: that computes it: of `found`, or one that differs in layout and padding alone.
        schedule: of that problem; None where nobody has tuned it.
        reason: why it is planned around; empty where it is not.
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
class PlannedTensor:
    """A tensor between nodes.

    Attributes:
        shape, dtype, is_given, is_result: as of the graph.
        layout: in which it is made.
    """

    shape: tuple[Size, ...]
    dtype: str
    is_given: bool
    is_result: bool
    layout: Layout


@dataclass(frozen=True)
class PlannedConversion:
    """A copy of a tensor in another layout, for all nodes that want it.

    Attributes:
        tensor: its number.
        layout: of the copy.
        time_us: of the copy.
    """

    tensor: int
    layout: Layout
    time_us: float


@dataclass(frozen=True)
class PlannedPass:
    """What is no contraction, as the runner does it: one pass over memory for a node or several.

    Attributes:
        nodes: their numbers; what they hand each other alone is in no memory.
        label: what is done.
        time_us: of the pass.
    """

    nodes: tuple[int, ...]
    label: str
    time_us: float


@dataclass(frozen=True)
class Totals:
    """Times of all nodes that are tuned, with conversions and passes, in microseconds.

    Attributes:
        chosen_us: as planned.
        plain_us: each node by the fastest schedule for the layouts that the model has.
        alone_us: each node by its fastest schedule of all, whatever the conversions cost; passes
            as they cost the least between.
    """

    chosen_us: float
    plain_us: float
    alone_us: float


@dataclass(frozen=True)
class Plan:
    """A network as it is to run.

    Attributes:
        schema: `SCHEMA`.
        model: the file's name.
        target: canonical.
        cache: hot or cold: how the layers were timed.
        is_exact: whether nothing that was offered is faster; else the choice was too wide, and the
            model's own layouts were taken.
        nodes: in an order in which they can run.
        tensors: by number.
        conversions: copies that are needed.
        totals: what it comes to.
        passes: what is timed besides, in order; none where nobody has timed passes.
        accuracy: of all its problems.
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
        """The object that `tilewise plan --json` prints."""
        return to_json(self)

    @classmethod
    def from_json(cls, source: object) -> "Plan":
        """The plan that `to_json` made an object of.

        Raises:
            ValueError: it is of another shape or schema.
        """
        given = source.get("schema") if isinstance(source, dict) else None
        if given != SCHEMA:
            raise ValueError(f"schema={given!r} is not {SCHEMA}; make the plan again")
        return from_json(cls, source, tolerant=True)
