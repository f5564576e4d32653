"""Write nodes of ONNX graphs in the place of others."""

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class NodeError(Exception):
    """A node cannot be expressed in what the importer knows; the message says why."""


def rewrite_nodes(
    graph: Any, written: Callable[[Any], Iterable[Any]], rewrite: Callable[[Any], bool]
) -> bool:
    """Replace each node by those `written` for a copy of it; return whether any differs.

    `rewrite` does the same for graphs inside of nodes.
    """
    nodes, has_changed = list[Any](), False
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                has_changed |= bool(inner.node) and rewrite(inner)
        made = list(written(type(node).FromString(node.SerializeToString())))
        has_changed |= made != [node]
        nodes += made
    if has_changed:
        del graph.node[:]
        graph.node.extend(nodes)
    return has_changed


class NodeWriter:
    """Writes what replaces one node, with further constants of its graph."""

    def __init__(self, onnx: Any, graph: Any, node: Any) -> None:
        self._onnx, self._graph, self._node = onnx, graph, node
        self._nodes = list[Any]()
        values = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
        self._given: dict[str, Any] = {
            name: one.decode() if isinstance(one, bytes) else one for name, one in values.items()
        }

    def _add(self, op: str, inputs: list[str], result: str, **given: Any) -> str:
        """Add a node that makes `result`, and return that."""
        self._nodes.append(self._onnx.helper.make_node(op, inputs, [result], **given))
        return result

    def _made(self, op: str, inputs: list[str], what: str, **given: Any) -> str:
        """Add a node, and return the new name of its result."""
        return self._add(op, inputs, self._name(what), **given)

    def _held(self, tensor: Any) -> str:
        """Return the name of a constant tensor of the graph."""
        self._graph.initializer.append(tensor)
        return str(tensor.name)

    def _constant(self, what: str, values: Array) -> str:
        array = np.ascontiguousarray(values)
        return self._held(self._onnx.numpy_helper.from_array(array, self._name(what)))

    def _integers(self, values: Any) -> str:
        return self._constant("numbers", np.array(values, np.int64))

    def _name(self, what: str) -> str:
        """Return a new name of a value."""
        count = len(self._graph.initializer) + len(self._nodes)
        return f"{self._node.output[0]}/{what}/{count}"

    def _refuse(self, why: str) -> NoReturn:
        name = self._node.name or self._node.output[0]
        raise NodeError(f"{self._node.op_type} {name}: {why}")
