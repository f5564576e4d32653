"""Shapes of staged blocks, and the part of an image that a block of outputs reads."""

from collections.abc import Mapping

from tilewise.kernels.nest.access import Axis, Role
from tilewise.kernels.nest.nest import Here, Nest
from tilewise.kernels.nest.nodes import Layout, Stage


def shape_of(nest: Nest, here: Here) -> tuple[int, ...]:
    """Return the shape of the largest block that a stage copies."""
    stage, tile = here.node, nest.tile
    assert isinstance(stage, Stage)
    depth, rows = here.blocks[nest.k], here.blocks[nest.row]
    if stage.layout in (Layout.PANELS, Layout.PANELS_ALONG_K):
        panels = -(-here.blocks[nest.col] // tile.cols)
        outer = here.blocks[nest.named(Role.POINT)[0]] if nest.algorithm else nest.taps
        if stage.layout is Layout.PANELS:
            return (panels, outer, depth, tile.cols)
        return (panels, outer, tile.cols, depth)
    if stage.layout is Layout.POINTS:
        return (here.blocks[nest.named(Role.POINT)[0]], rows, depth)
    if stage.layout is Layout.IMAGE:
        return (*halo(nest, here.blocks), depth)
    return (rows, depth)


def halo(nest: Nest, blocks: Mapping[str, int]) -> tuple[int, ...]:
    """Return the lines and pixels of an nhwc image that a block of outputs reads."""
    lengths = dict(blocks) | {name: nest.dim(name).extent for name in nest.named(Role.TAP)}
    axes = [a for a in nest.operand(nest.image).axes if len(a.terms) > 1 and _has_tap(nest, a)]
    return tuple(high - low + 1 for low, high in (a.bounds(lengths) for a in axes))


def _has_tap(nest: Nest, axis: Axis) -> bool:
    return any(nest.dim(term.dim).role is Role.TAP for term in axis.terms)
