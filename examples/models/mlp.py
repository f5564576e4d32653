"""A multi-layer perceptron in bf16: 16 rows through six layers, sums in f32."""

from examples.models.graph import Graph, Value


def mlp(small: bool = False) -> Graph:
    """1024 -> 4096 five times -> 1024; small: 32 -> 64 twice -> 32."""
    rows, ends, width, hidden = (16, 32, 64, 2) if small else (16, 1024, 4096, 5)
    graph = Graph("mlp", Value("given", (rows, ends), "bf16"))
    x = graph.given
    for _ in range(hidden):
        x = graph.narrow(graph.linear(x, width, relu=True, gain=2**0.5))
    graph.linear(x, ends)
    return graph
