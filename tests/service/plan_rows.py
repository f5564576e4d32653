"""A plan of one matmul, as the database has it."""

from tilewise.kernels.mlir.frontend.graph import (
    Arrangement,
    Graph,
    Node,
    Occurrence,
    Tensor,
    TensorUse,
)
from tilewise.kernels.problem import Accuracy
from tilewise.search.records import TuneRequest
from tilewise.service.jobs.model_jobs import Wanted, compressed

PROBLEM = "matmul:m=64,n=48,k=32,dtype=f32"
WHOLE = tuple(Arrangement((0, 1), shape, False) for shape in ((64, 32), (32, 48), (64, 48)))
GRAPH = Graph(
    (
        Node(
            "contraction", "linalg.matmul", "main",
            (TensorUse(0, (64, 32), "A"), TensorUse(1, (32, 48), "B")),
            (TensorUse(2, (64, 48), "C"),),
            Occurrence(PROBLEM, "linalg.matmul", "main", *WHOLE, False, ()), 1,
        ),
    ),
    (
        Tensor((64, 32), "f32", True, False), Tensor((32, 48), "f32", True, False),
        Tensor((64, 48), "f32", False, True),
    ),
)  # fmt: skip


def wanted(target: str, accuracy: Accuracy = "standard") -> Wanted:
    """The plan, for a target."""
    module, graph = compressed(b"module {}"), GRAPH.with_accuracy(accuracy)
    request = TuneRequest(trials=4)
    return Wanted("ab" * 32, "one.mlir", module, graph, "all", target, request, accuracy)
