"""MobileNetV2, f32, batch 1, batch norms folded into the convolutions."""

from examples.models.graph import Graph, Value

CEILING = 6  # of every relu
LAST = 0.5  # gain of a block's last convolution, so that sums of blocks do not grow
FULL = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
        (6, 320, 1, 1)]  # fmt: skip
SMALL = [(1, 16, 1, 1), (6, 24, 2, 2)]


def mobilenet_v2(small: bool = False) -> Graph:
    """224x224 pixels, 52 convolutions, 17 of them depthwise, and a classifier.

    Small: 32x32 pixels and the first three blocks.
    """
    side, stages, last, classes = (32, SMALL, 64, 24) if small else (224, FULL, 1280, 1000)
    graph = Graph("mobilenet_v2", Value("given", (1, side, side, 3)))
    x = graph.conv(graph.given, 32, 3, 2, ceiling=CEILING)
    for times, channels, blocks, stride in stages:
        for block in range(blocks):
            x = _inverted_residual(graph, x, times, channels, 1 if block else stride)
    x = graph.conv(x, last, 1, ceiling=CEILING)
    graph.linear(graph.mean_pool(x), classes)
    return graph


def _inverted_residual(graph: Graph, x: Value, times: int, channels: int, stride: int) -> Value:
    """Few channels, many, and few again: 1x1, depthwise 3x3, 1x1 without relu."""
    inner = x.shape[3]
    y = x if times == 1 else graph.conv(x, times * inner, 1, ceiling=CEILING)
    y = graph.conv(y, y.shape[3], 3, stride, ceiling=CEILING, depthwise=True)
    y = graph.conv(y, channels, 1, relu=False, gain=LAST)
    return graph.add(y, x) if stride == 1 and channels == inner else y
