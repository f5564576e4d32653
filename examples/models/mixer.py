"""MLP-Mixer B/16 (Tolstikhin and others, 2021): 12 layers over 196 patches of 768 channels, f32."""

from examples.models.graph import Graph, Value


def mixer(small: bool = False) -> Graph:
    """The stack of layers, from embedded patches; small: 2 layers over 12 patches of 32."""
    layers, patches, width, of_patches, of_width = (
        (2, 12, 32, 24, 48) if small else (12, 196, 768, 384, 3072)
    )
    graph = Graph("mixer", Value("given", (patches, width)))
    x = graph.given
    for _ in range(layers):
        y = _perceptron(graph, graph.transpose(graph.layer_norm(x)), of_patches)
        x = graph.add(graph.transpose(y), x)
        x = graph.add(_perceptron(graph, graph.layer_norm(x), of_width), x)
    graph.layer_norm(x)
    return graph


def _perceptron(graph: Graph, x: Value, hidden: int) -> Value:
    return graph.linear(graph.gelu(graph.linear(x, hidden)), x.shape[1])
