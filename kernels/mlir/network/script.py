"""The script of a module: each op packed, and adjacent packs cancelled."""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from tilewise.kernels.mlir.frontend.nest import Dims
from tilewise.kernels.mlir.network.packing import AxisOrder, PackedOp
from tilewise.kernels.mlir.transform.module import HEADER_END, MODULE
from tilewise.kernels.mlir.transform.sequences import filled
from tilewise.kernels.mlir.transform.writer import ANY, SequenceWriter

NAMED_SEQUENCES = Path(__file__).with_name("named_sequences")


def network_sequence(template: str, **values: object) -> str:
    """Return the text of a named sequence, or of a part of one."""
    return filled(NAMED_SEQUENCES / f"{template}.mlir", **values)


SPREAD = ("linalg.broadcast", "linalg.transpose", "linalg.map", "linalg.elementwise")
"""Ops that packs move through once they are generic."""

How = tuple[Dims, tuple[AxisOrder, AxisOrder, AxisOrder]]
"""The sizes and orders of ops that are packed alike."""


def emit_packs(ops: Sequence[PackedOp], counts: Mapping[str, int]) -> str:
    """Return the transform module that packs a module's ops and cancels packs where possible.

    An op is found by its position among all ops of its name; the script fails for another count.
    """
    w = SequenceWriter()
    names = {how: f"pack_{i}" for i, how in enumerate(dict.fromkeys(map(_how, ops)))}
    handles = {name: _split(w, name, counts[name]) for name in {one.op.name: 0 for one in ops}}
    if spread := [name for name in SPREAD if counts.get(name)]:
        kinds = ", ".join(f'"{name}"' for name in spread)
        w.line("// packs pass ops without a name")
        w.line(f"%spread = transform.structured.match ops{{[{kinds}]}} in %func : ({ANY}) -> {ANY}")
        w.generalize("%spread", "plain")
    for one in ops:
        handle = handles[one.op.name][one.op.number]
        w.line(f"// {one.op.where}")
        w.line(
            f"transform.include @{names[_how(one)]} failures(propagate) ({handle}) : ({ANY}) -> ()"
        )
        w.include("propagate")
    packs = network_sequence("pack_module", lines="\n".join(w.lines))
    named = (_sequence(name, *how) for how, name in names.items())
    sequences = textwrap.indent("\n".join([packs, network_sequence("propagate"), *named]), "  ")
    return f"{HEADER_END}{MODULE}\n{sequences}}}\n"


def _how(op: PackedOp) -> How:
    return op.sizes, op.orders


def _split(w: SequenceWriter, op: str, count: int) -> list[str]:
    """Return a handle on each op of a name."""
    found = w.match(op, op.partition(".")[2])
    if count == 1:
        return [found]
    each = w.name("each")
    w.line(
        f"{each}:{count} = transform.split_handle {found} : ({ANY}) -> ({', '.join([ANY] * count)})"
    )
    return [f"{each}#{i}" for i in range(count)]


def _sequence(name: str, sizes: Dims, orders: tuple[AxisOrder, AxisOrder, AxisOrder]) -> str:
    """Return the sequence that packs one op."""
    lines, op = "", "%packed"
    for index, order in enumerate(orders[:2]):
        if not order.is_there:
            lines += network_sequence("order_operand", index=index, op=op, order=_describe(order))
            op = f"%ordered_{index}"
    if not orders[2].is_there:
        lines += network_sequence("order_result", op=op, order=_describe(orders[2]))
    title = f"blocks of {' x '.join(str(size or '-') for size in sizes)} along the loops"
    return network_sequence("pack_op", name=name, title=title, sizes=list(sizes), orders=lines)


def _describe(order: AxisOrder) -> str:
    outer = f"outer_perm = {list(order.outer)}" if order.outer else ""
    inner = f"inner_perm = {list(order.inner)}" if order.inner else ""
    return f"{outer} {inner}".strip()
