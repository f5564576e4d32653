"""Loops of one trip, added to a nest: more nests then share a macro-kernel.

The first sixty schedules of a search have some twenty structures, which are seven apart from dims
that they cut or leave whole. A macro-kernel takes 30 ms to compile; a loop of one trip costs
nothing next to its micro-kernels, unless they are few and small.
"""

from dataclasses import replace
from math import prod

from tilewise.kernels.nest import Fetch, Loop, LoopKind, Nest, Node, Role, Stage

LEAST_WORK = 1 << 20
"""Multiply-adds. Loops of one trip cost up to 4% of 64^3 and of 32^3, and 9% of 16^3."""


def uniform(nest: Nest) -> Nest:
    """Return `nest` with a loop over blocks of each dim, in the order in which a search nests them.

        for n0: pack B, register tiles     for n0: for k0: pack B, for m0: register tiles

    A nest in another order, with two such loops over a dim, with little work, with transformed
    operands, or whose micro-kernel has the loops over register tiles stays as it is.
    """
    if nest.is_macro or nest.algorithm or _work(nest) < LEAST_WORK:
        return nest
    outer, tiles = _around_tiles(nest)
    places = _places(nest)
    blocks = [node for node in outer if _name(node)]
    order = [places.get(_name(node), -1) for node in blocks]
    if -1 in order or order != sorted(set(order)):
        return nest
    blocks += [_whole(nest, dim) for dim in _blocked(nest) if places[dim] not in order]
    blocks.sort(key=lambda node: places[_name(node)])
    parallel = [node for node in outer if isinstance(node, Loop) and not _name(node)]
    fetches = [node for node in outer if isinstance(node, Fetch)]
    return replace(nest, body=_nested([*parallel, *blocks, *fetches], tiles))


def _work(nest: Nest) -> int:
    """Return the multiply-adds of one iteration over the dims that are visited one at a time."""
    return prod(dim.extent for dim in nest.dims if not dim.single)


def _around_tiles(nest: Nest) -> tuple[list[Node], tuple[Node, ...]]:
    """Return the nodes outside the register tiles, outermost first, and those from there on."""
    outer, nodes = list[Node](), nest.body
    while True:
        first = nodes[0]
        if isinstance(first, Loop) and first.kind is LoopKind.MICRO:
            return outer, nodes
        outer.append(first)
        nodes = first.body if isinstance(first, Loop) else nodes[1:]


def _nested(outer: list[Node], body: tuple[Node, ...]) -> tuple[Node, ...]:
    """Return the nodes in their order, each loop around all that follow."""
    for node in reversed(outer):
        body = (replace(node, body=body),) if isinstance(node, Loop) else (node, *body)
    return body


def _places(nest: Nest) -> dict[str, int]:
    """Return the order of loops over blocks, by dim, and of packs, by operand."""
    col, k, row = _blocked(nest)
    images = [dim for dim in nest.rows if dim not in (row, nest.row)]
    names = [*nest.named(Role.LEAD), col, k, "B", *images, row, "A"]
    return {name: place for place, name in enumerate(names)}


def _blocked(nest: Nest) -> tuple[str, str, str]:
    """Return the dims that a search cuts into blocks; of an image its lines."""
    return nest.col, nest.k, "oh" if nest.image == "A" else nest.row


def _name(node: Node) -> str:
    """Return the dim of a loop over blocks or the operand of a pack; empty for anything else."""
    if isinstance(node, Stage):
        return node.operand
    if isinstance(node, Loop) and node.kind in (LoopKind.TILE, LoopKind.K_BLOCK):
        return node.dim
    return ""


def _whole(nest: Nest, dim: str) -> Loop:
    kind = LoopKind.K_BLOCK if dim == nest.k else LoopKind.TILE
    return Loop(dim, nest.extent(dim), kind)
