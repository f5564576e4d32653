"""A plan of the small ResNet executed in numpy: tensors lie in memory as the plan says."""

from collections.abc import Iterator

import numpy as np

from examples.models.graph import Array, Graph
from tilewise.kernels.native.conversion import converter
from tilewise.kernels.oracle.operands import Operands
from tilewise.kernels.oracle.reference import reference
from tilewise.kernels.problem import Conv2d, Problem, parse_problem
from tilewise.search.networks.copy_times import conversion_of
from tilewise.search.networks.plan import Plan, PlannedNode
from tilewise.search.networks.variants import TensorLayout


class Execution:
    """The memory of a run.

    Args:
        plan: of `graph`, whose weights its layers take in their order.
        graph: the model.
    """

    def __init__(self, plan: Plan, graph: Graph) -> None:
        self._plan = plan
        self._weights = self._of_layers(graph)
        self._memory: dict[tuple[int, TensorLayout], Array] = {}

    def run(self, argument: Array) -> Array:
        """The model's result; the argument has the shape of the module's."""
        (given,) = (i for i, tensor in enumerate(self._plan.tensors) if tensor.is_given)
        (result,) = (i for i, tensor in enumerate(self._plan.tensors) if tensor.is_result)
        self._put(given, argument)
        for node in self._plan.nodes:
            made = self._contraction(node) if node.problem else self._other(node)
            self._put(node.makes[0].tensor, made)
        return self._tensor(result)

    def _put(self, number: int, memory: Array) -> None:
        """Keep a tensor as it was made, and make the copies that the plan has of it."""
        tensor = self._plan.tensors[number]
        stored = [tensor.shape[axis] for axis in tensor.layout.order]
        source = np.ascontiguousarray(memory, np.float32).reshape(stored)
        self._memory[number, tensor.layout] = source
        for one in self._plan.conversions:
            if one.tensor == number:
                found = conversion_of(tensor.shape, tensor.dtype, tensor.layout, one.layout)
                assert found is not None
                copied = np.zeros(found[0].target_shape, found[1])
                converter(found[0])(source.view(found[1]), copied)
                self._memory[number, one.layout] = copied.view(np.float32)

    def _tensor(self, number: int) -> Array:
        """A tensor that is had as the model has it."""
        shape = self._plan.tensors[number].shape
        plain = TensorLayout(tuple(axis for axis, size in enumerate(shape) if size != 1))
        return self._memory[number, plain].reshape(shape)

    def _contraction(self, node: PlannedNode) -> Array:
        assert node.problem is not None
        problem = parse_problem(node.problem)
        weights, bias = next(self._weights)
        operands: Operands = {"B": _filter(problem, weights), "bias": bias}
        for use in node.reads:
            memory = self._memory[use.tensor, use.layout]
            operands[use.role] = memory.reshape(problem.operand_shapes[use.role])
        operands.setdefault("C", np.zeros(problem.operand_shapes["C"], np.float32))
        assert {name: one.shape for name, one in operands.items()} == problem.operand_shapes
        return reference(problem, operands).value

    def _other(self, node: PlannedNode) -> Array:
        """The pool with its padding, and the mean: what the model has besides layers."""
        x = self._tensor(node.reads[0].tensor)
        shape = node.makes[0].shape
        if node.op == "tensor.pad":
            pads = [(int(b != a), int(b != a)) for a, b in zip(x.shape, shape, strict=True)]
            return np.pad(x, pads, constant_values=-np.inf)
        if node.kind == "pool":
            axes = tuple(i for i, (a, b) in enumerate(zip(x.shape, shape, strict=True)) if a != b)
            seen = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axes).max((-1, -2))
            return seen[tuple(slice(None, None, 2 if i in axes else 1) for i in range(x.ndim))]
        if node.kind == "other":
            kept = [i for i, size in enumerate(x.shape) if size in shape]
            return x.sum(tuple(i for i in range(x.ndim) if i not in kept))
        return x / 16  # the mean of 4x4 pixels

    @staticmethod
    def _of_layers(graph: Graph) -> Iterator[tuple[Array, Array]]:
        return (
            (graph.weights[layer.weights[0]], graph.weights[layer.weights[1]])
            for layer in graph.layers
            if layer.weights
        )


def _filter(problem: Problem, weights: Array) -> Array:
    """A filter of the example's models, hwcf, as a problem has it; a matrix likewise."""
    if isinstance(problem, Conv2d):
        return weights.transpose(3, 2, 0, 1) if problem.has_channels_first else weights
    return weights.T if problem.transpose_b else weights
