"""Ops of modules, and schedules for them, for tests of scripts on the ops themselves."""

import random
from dataclasses import replace

from tests.kernels.mlir.frontend.generics import (
    Generic,
    random_contraction,
    random_convolution,
)
from tilewise.kernels.mlir.frontend.graph import LoneOp
from tilewise.kernels.mlir.frontend.read import read_op
from tilewise.kernels.mlir.op_scripts.normal_form import normal_form, schedulable
from tilewise.kernels.mlir.op_scripts.prove import emit_for_op
from tilewise.kernels.schedule import Schedule, loop_nest
from tilewise.kernels.target import Target
from tilewise.search.space.space import Space

SIZES = (1, 2, 3, 4, 5, 7, 8, 13, 16, 24, 33)


def contraction(rng: random.Random) -> Generic:
    """A contraction in any order, with loops long enough for vectors."""
    case = random_contraction(rng)
    while case.trap != "none":
        case = random_contraction(rng)
    return replace(case, extents=tuple(rng.choice(SIZES) for _ in case.extents))


def convolution(rng: random.Random) -> Generic:
    """A convolution of one group or of groups with many channels, in any order."""
    case = random_convolution(rng)
    while case.trap != "none" or _strides(case) > 1:
        case = random_convolution(rng)
    n, oh, _, _, _, kh, kw, _ = case.extents
    groups = rng.choice((1, 1, 2))
    inputs, outputs = (9, 24) if groups > 1 else (rng.choice((1, 3, 16)), rng.choice((1, 4, 24)))
    return replace(case, extents=(n, oh, rng.choice((1, 5, 9)), groups, outputs, kh, kw, inputs))


def _strides(case: Generic) -> int:
    """How many different strides the windows have."""
    return len({step for axis in case.maps[0] if len(axis) > 1 for dim, step in axis if dim < 3})


def read(case: Generic) -> LoneOp:
    """The op by itself."""
    return read_op(case.text("f").encode())


def drawn(lone: LoneOp, target: Target, rng: random.Random) -> Schedule:
    """A random legal schedule of an op's problem, without what has no script on such an op."""
    space = Space(schedulable(lone), target, has_scripts=True)
    is_product = not lone.nest.has_windows
    while True:
        point = space.draw(rng)
        if space.legal_hash(point) is None:
            continue
        schedule = space.schedule(point)
        nest = loop_nest(space.problem, schedule)
        if nest.algorithm is None and (is_product or nest.compute.lanes == 1):
            return schedule


def generic(
    extents: str, maps: tuple[str, str, str], shapes: tuple[str, str, str], body: str = "%x, %y"
) -> str:
    """A function with one f32 op that starts from its third argument.

    Args:
        extents: the loops, as `i, j, k`.
        maps: the axes of both inputs and of the result, as `i, k`.
        shapes: of them, as `4x5`.
        body: the factors in the order in which they are multiplied.
    """
    a, b, c = (f"tensor<{shape}xf32>" for shape in shapes)
    written = [name.strip() for name in maps[2].split(",")]
    kinds = ", ".join(
        '"parallel"' if name.strip() in written else '"reduction"' for name in extents.split(",")
    )
    accesses = ", ".join(f"affine_map<({extents}) -> ({one})>" for one in maps)
    return f"""
func.func @f(%a: {a}, %b: {b}, %c: {c}) -> {c} {{
  %r = linalg.generic {{indexing_maps = [{accesses}], iterator_types = [{kinds}]}}
      ins(%a, %b : {a}, {b}) outs(%c : {c}) {{
  ^bb0(%x: f32, %y: f32, %s: f32):
    %p = arith.mulf {body} : f32
    %t = arith.addf %s, %p : f32
    linalg.yield %t : f32
  }} -> {c}
  return %r : {c}
}}
"""


def transformed(lone: LoneOp, schedule: Schedule) -> str:
    """The module that the script of an op makes of its payload."""
    from iree.compiler import ir

    from tilewise.kernels.mlir.lowering.apply import Diagnostics, apply_to

    script = emit_for_op(normal_form(lone, schedule), schedule)
    with ir.Context() as context, ir.Location.unknown():
        return str(apply_to(lone.payload, script, Diagnostics(context)))
