"""BERT-base: 12 layers, 12 heads, tokens of 768; in f32, or with products in bf16."""

from collections.abc import Callable

from examples.models.graph import Graph, Value

Seen = Callable[[Value], Value]


def bert(small: bool = False, tokens: int = 128) -> Graph:
    """The stack of layers, from embedded tokens; small: 2 layers, 2 heads, 16 tokens of 32."""
    graph = _named("bert", small, tokens)
    return _encoder(graph, small, lambda x: x)


def bert_bf16(small: bool = False, tokens: int = 128) -> Graph:
    """The same with every operand of a product rounded to bf16, as mixed precision has it.

    Sums, normalisations, softmax and the residuals are f32.
    """
    graph = _named("bert_bf16", small, tokens)
    return _encoder(graph, small, graph.narrow)


def _named(name: str, small: bool, tokens: int) -> Graph:
    return Graph(name, Value("given", (16, 32) if small else (tokens, 768)))


def _encoder(graph: Graph, small: bool, seen: Seen) -> Graph:
    """The layers; `seen` is what becomes of an operand of a product."""
    x, (layers, heads) = graph.given, (2, 2) if small else (12, 12)
    width = x.shape[1]
    for _ in range(layers):
        x = graph.layer_norm(graph.add(_attention(graph, seen(x), heads, seen), x))
        y = graph.gelu(graph.linear(seen(x), 4 * width))
        x = graph.layer_norm(graph.add(graph.linear(seen(y), width), x))
    return graph


def _attention(graph: Graph, x: Value, heads: int, seen: Seen) -> Value:
    width = x.shape[1]
    q, k, v = (graph.split_heads(seen(graph.linear(x, width)), heads) for _ in range(3))
    scores = graph.scaled(graph.scores(q, k), (width // heads) ** -0.5)
    mixed = graph.mix(seen(graph.softmax(scores)), v)
    return graph.linear(graph.merge_heads(seen(mixed)), width)
