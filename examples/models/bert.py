"""The encoder of BERT-base: 12 layers, 12 heads, 128 tokens of 768, f32."""

from examples.models.graph import Graph, Value


def bert(small: bool = False) -> Graph:
    """The stack of layers, from embedded tokens; small: 2 layers, 2 heads, 16 tokens of 32."""
    layers, heads, tokens, width = (2, 2, 16, 32) if small else (12, 12, 128, 768)
    graph = Graph("bert", Value("given", (tokens, width)))
    x = graph.given
    for _ in range(layers):
        x = graph.layer_norm(graph.add(_attention(graph, x, heads), x))
        y = graph.gelu(graph.linear(x, 4 * width))
        x = graph.layer_norm(graph.add(graph.linear(y, width), x))
    return graph


def _attention(graph: Graph, x: Value, heads: int) -> Value:
    width = x.shape[1]
    q, k, v = (graph.split_heads(graph.linear(x, width), heads) for _ in range(3))
    scores = graph.scaled(graph.scores(q, k), (width // heads) ** -0.5)
    mixed = graph.mix(graph.softmax(scores), v)
    return graph.linear(graph.merge_heads(mixed), width)
