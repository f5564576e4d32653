"""What was decided for each op of the graphs of this process, for `report`."""

import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from tilewise.errors import BadInputError
from tilewise.kernels.quoting import duration


@dataclass(frozen=True)
class Op:
    """An op that a kernel could compute, and the decision.

    Attributes:
        name: of the node in the graph.
        problem: the widest problem that the op and its epilogue are, or that of the kernel used;
            empty if no problem describes the op.
        kernel: name of the kernel used; empty if the op was left to PyTorch.
        reason: why it was left to PyTorch.
        kernel_us, torch_us: cold-weight times of both, if they were compared.
    """

    name: str
    problem: str = ""
    kernel: str = ""
    reason: str = ""
    kernel_us: float | None = None
    torch_us: float | None = None

    def __str__(self) -> str:
        pair = f"{duration(self.torch_us)} -> {duration(self.kernel_us)}"
        times = "" if self.torch_us is None else f", {pair}"
        return f"{self.name:18} {'kernel' if self.kernel else self.reason}{times}  {self.problem}"


@dataclass
class Graph:
    """The ops of one compiled graph, or why the whole graph was left to Inductor.

    Attributes:
        inputs: weak references to its tensors, weights among them.
    """

    ops: list[Op] = field(default_factory=list)
    fallback: str = ""
    inputs: list[weakref.ref[Any]] = field(default_factory=list)
    _versions: list[tuple[weakref.ref[Any], int]] = field(default_factory=list)
    _is_left: bool = False

    def keep(self, weights: Any) -> None:
        """Have the graph used only until these weights are written to."""
        if not weights.is_inference():  # those do not say when
            self._versions.append((weakref.ref(weights), weights._version))

    def leave(self) -> None:
        """Have PyTorch compile the graph again when it is called next."""
        self._is_left = True

    def is_current(self) -> bool:
        """Return whether PyTorch may still use the graph."""
        for of, version in self._versions:
            weights = of()
            if weights is None or weights._version != version:
                return False
        return not self._is_left

    def guard(self, builder: Any, guard: Any) -> None:
        """Have Dynamo ask for `is_current` before each call."""
        about = ["weights are as they were compiled, and no search has ended since"]
        root = builder.guard_manager.root
        root.add_lambda_guard(lambda _: self.is_current(), about, guard.user_stack)


_graphs: list[Graph] = []


def new_graph(inputs: Iterable[Any]) -> Graph:
    """Return the record of a graph, to be filled in, and keep it for the owner of its weights."""
    _graphs[:] = filter(Graph.is_current, _graphs)
    _graphs.append(Graph(inputs=list(map(weakref.ref, inputs))))
    return _graphs[-1]


def report(model: Any = None) -> list[Op]:
    """Print what was decided for each op of a compiled model, and return it.

    Without a model, or for one without weights, report on all graphs of this process.

    Raises:
        BadInputError: no graph of the model was compiled.
    """
    is_module = isinstance(model, torch.nn.Module)  # and not a function
    tensors = (*model.parameters(), *model.buffers()) if is_module else ()
    weights = [id(one) for one in tensors]
    graphs = [
        one for one in _graphs if not weights or any(id(of()) in weights for of in one.inputs)
    ]
    if not graphs:
        raise BadInputError(
            "report: no graph was compiled; call torch.compile(model, backend='tilewise') on inputs"
        )
    for number, graph in enumerate(graphs):
        used = sum(bool(op.kernel) for op in graph.ops)
        about = graph.fallback or f"{used} of {len(graph.ops)} ops use a kernel"
        print(f"graph {number}: {about}", *graph.ops, sep="\n  ")
    return [op for graph in graphs for op in graph.ops]
