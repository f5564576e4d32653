"""A plan of a network: for each node what computes it, for each tensor how it lies in memory.

A plan is a value with a stable JSON form. `SCHEMA` names its version; a field that goes or changes
its meaning makes another one.
"""

import json
from dataclasses import dataclass
from typing import Any

from tilewise.kernels.mlir.frontend.graph import NodeKind, Occurrence, Size
from tilewise.kernels.problem import Accuracy
from tilewise.kernels.system.typed_json import from_json, to_json
from tilewise.search.networks.costs import Timed
from tilewise.search.networks.variants import Layout

SCHEMA = "tilewise/plan/1"


@dataclass(frozen=True)
class PlannedUse:
    """A tensor as a node reads or makes it.

    Attributes:
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
    """A tensor between nodes."""

    shape: tuple[Size, ...]
    dtype: str
    is_given: bool
    is_result: bool
    layout: Layout


@dataclass(frozen=True)
class PlannedConversion:
    """A copy of a tensor in another layout, for all nodes that want it."""

    tensor: int
    layout: Layout
    time_us: float


@dataclass(frozen=True)
class PlannedPass:
    """What is no contraction, as the runner does it: one pass over memory for a node or several.

    Attributes:
        nodes: their numbers; what they hand each other alone is in no memory.
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
        cache: hot or cold: how the layers were timed.
        is_exact: whether nothing that was offered is faster; else the choice was too wide, and the
            model's own layouts were taken.
        nodes: in an order in which they can run.
        conversions: copies that are needed.
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


_TEXT = '''"""A network as it was planned: `load` gives the object that runs it.

It needs Tilewise, a machine of the plan's target, and the module that was planned, whose weights
it reads:

    network = load("model.mlir")
    (result,) = network.run(image)
"""

import hashlib
import json
from os import PathLike
from pathlib import Path

from tilewise.search.networks.plan import Plan
from tilewise.search.networks.running.network import Network

SHA256 = "$sha256"
"""Of the module that was planned."""

PLAN = json.loads(r\'\'\'
$plan
\'\'\')
"""`tilewise/plan/1`."""


def load(module: "bytes | str | PathLike[str]") -> Network:
    """The network of the module that was planned.

    Args:
        module: its path, or its text or bytecode as bytes.

    Raises:
        OSError: there is no such file.
        ValueError: it is another module.
        tilewise.search.errors.NetworkError: an op does not run here, or on another machine.
    """
    content = module if isinstance(module, bytes) else Path(module).read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != SHA256:
        raise ValueError(f"the module's SHA-256 is {found}, and that of the module that was "
                         f"planned is {SHA256}; load that one, or plan this one")
    return Network.load(Plan.from_json(PLAN), content)
'''


def runner_text(plan: dict[str, Any], sha256: str) -> str:
    """The text of a module with a plan and with `load`, which gives its network.

    Args:
        plan: `tilewise.search.networks.plan.Plan.to_json`.
        sha256: of the module that was planned, hex; `load` refuses another one.
    """
    # JSON is ASCII here, and without apostrophes no text in it ends the literal.
    told = json.dumps(plan, indent=1, allow_nan=False).replace("'", "\\u0027")
    return _TEXT.replace("$sha256", sha256).replace("$plan", told)
