"""ResNet-50 v1.5, f32, batch 1, batch norms folded into the convolutions."""

from examples.models.graph import Graph, Value

LAST = 0.3  # gain of a block's last convolution, so that sums of blocks do not grow


def resnet50(small: bool = False) -> Graph:
    """224x224 pixels, 53 convolutions and a classifier; small: 32x32 and a block a stage."""
    side, width, blocks, classes = (32, 16, (1, 1), 24) if small else (224, 64, (3, 4, 6, 3), 1000)
    graph = Graph("resnet50", Value("given", (1, side, side, 3)))
    x = graph.max_pool(graph.conv(graph.given, width, 7, 2))
    for stage, count in enumerate(blocks):
        for block in range(count):
            stride = 2 if stage and not block else 1
            x = _bottleneck(graph, x, width << stage, stride, not block)
    graph.linear(graph.mean_pool(x), classes)
    return graph


def _bottleneck(graph: Graph, x: Value, width: int, stride: int, is_first: bool) -> Value:
    y = graph.conv(x, width, 1)
    y = graph.conv(y, width, 3, stride)
    y = graph.conv(y, 4 * width, 1, relu=False, gain=LAST)
    short = graph.conv(x, 4 * width, 1, stride, relu=False, gain=0.7) if is_first else x
    return graph.add(y, short, relu=True)
