"""Types of the values of an ONNX graph, and the attributes of its nodes."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

FLOAT = 1


@dataclass(frozen=True)
class TypeOf:
    """The type of a value.

    Attributes:
        element: ONNX's number of the element type.
        shape: None for an axis of unknown length; None where nothing is known.
    """

    element: int = FLOAT
    shape: tuple[int | None, ...] | None = None

    @property
    def spatial(self) -> list[int | None] | None:
        """The axes behind images and channels."""
        return None if self.shape is None else list(self.shape[2:])


def types_of(graph: Any) -> dict[str, TypeOf]:
    """The type of each value of a graph; of an unknown name one of which nothing is known."""
    found: dict[str, TypeOf] = defaultdict(TypeOf)
    for value in (*graph.input, *graph.value_info, *graph.output):
        kind = value.type.tensor_type
        if kind.HasField("shape"):
            dims = (one.dim_value if one.HasField("dim_value") else None for one in kind.shape.dim)
            found[value.name] = TypeOf(kind.elem_type, tuple(dims))
    for tensor in graph.initializer:
        found[tensor.name] = TypeOf(tensor.data_type, tuple(tensor.dims))
    return found


def attributes(onnx: Any, node: Any) -> dict[str, Any]:
    """The values of a node's attributes by name; texts are text."""
    values = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
    return {name: one.decode() if isinstance(one, bytes) else one for name, one in values.items()}
