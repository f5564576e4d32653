"""What every spelling needs: names, types, weights as resources, the function around the body."""

from abc import ABC, abstractmethod

import numpy as np

from examples.models.graph import Array, Graph, Shape, Value

ALIGNMENT = (64).to_bytes(4, "little")


class Writer(ABC):
    """Writes the layers of a graph, each by the method named as its kind."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.lines: list[str] = []
        self.resources: list[str] = []
        self.names = {graph.given.name: "%given"}
        self._count = 0

    def text(self) -> str:
        """The module."""
        for layer in self.graph.layers:
            reads = [self.names[value.name] for value in layer.reads]
            write = getattr(self, layer.kind)
            self.names[layer.gives.name] = write(layer, *reads)
        given, result = self.type_of(self.graph.given), self.type_of(self.graph.result)
        body = "\n".join(f"    {line}" for line in self.lines)
        blobs = ",\n      ".join(self.resources)
        return (
            f"module {{\n  func.func @main(%given: {given}) -> {result} {{\n{body}\n"
            f"    {self.leave()} {self.names[self.graph.result.name]} : {result}\n  }}\n}}\n\n"
            f"{{-#\n  dialect_resources: {{\n    builtin: {{\n      {blobs}\n    }}\n  }}\n#-}}\n"
        )

    @abstractmethod
    def leave(self) -> str:
        """The op that ends a function."""

    @abstractmethod
    def constant_op(self) -> str:
        """The op of a constant."""

    def shape_of(self, shape: Shape) -> Shape:
        """An image's shape in this spelling's layout."""
        return shape

    def type_of(self, value: Value) -> str:
        """The type of a value in this spelling."""
        return tensor(self.shape_of(value.shape), value.dtype)

    def fresh(self) -> str:
        """A name that nothing has."""
        self._count += 1
        return f"%{self._count}"

    def put(self, text: str) -> str:
        """One operation with one result; its name."""
        name = self.fresh()
        self.lines.append(f"{name} = {text}")
        return name

    def weight(self, values: Array, name: str, dtype: str = "f32") -> str:
        """Weights as a constant whose bytes are a resource."""
        shown = np.ascontiguousarray(values, np.float32)
        if dtype == "bf16":
            shown = (shown.view(np.uint32) >> 16).astype(np.uint16)
        blob = (ALIGNMENT + shown.tobytes()).hex().upper()
        self.resources.append(f'{name}: "0x{blob}"')
        kind = tensor(values.shape, dtype)
        return self.put(f"{self.constant_op()} dense_resource<{name}> : {kind}")


def tensor(shape: Shape, dtype: str) -> str:
    """A tensor type."""
    return f"tensor<{'x'.join(map(str, (*shape, dtype)))}>"
