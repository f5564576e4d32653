"""A plan of one matmul, as the database has it."""

from tilewise.kernels.mlir.frontend import graph as graphs
from tilewise.kernels.problem import Accuracy
from tilewise.search.networks.request import PlanRequest
from tilewise.service.jobs.model_jobs import Wanted, compressed

PROBLEM = "matmul:m=64,n=48,k=32,dtype=f32"
SHAPES = ((64, 32), (32, 48), (64, 48))
WHOLE = tuple(graphs.Arrangement((0, 1), shape, False) for shape in SHAPES)
A, B, C = map(graphs.TensorUse, range(3), SHAPES, "ABC")
FOUND = graphs.Occurrence(PROBLEM, "linalg.matmul", "main", *WHOLE, False, ())
GRAPH = graphs.Graph(
    (graphs.Node("contraction", "linalg.matmul", "main", (A, B), (C,), FOUND, 1),),
    tuple(graphs.Tensor(shape, "f32", shape != (64, 48), shape == (64, 48)) for shape in SHAPES),
)


def wanted(target: str, accuracy: Accuracy = "standard") -> Wanted:
    """The plan, for a target."""
    module, graph = compressed(b"module {}"), GRAPH.with_accuracy(accuracy)
    request = PlanRequest(target=target, trials=4, accuracy=accuracy, name="one.mlir")
    return Wanted("ab" * 32, module, graph, request)
