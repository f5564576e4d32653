"""The script of an op of a module: its normal form first, then the loops of a schedule."""

from tilewise.kernels.mlir.cpu.script import emit_on
from tilewise.kernels.mlir.frontend.nest import Dims
from tilewise.kernels.mlir.normalised.normal_form import NormalForm
from tilewise.kernels.mlir.normalised.packing import Move
from tilewise.kernels.mlir.transform.sequences import drop_unit_axes, epilogue_matcher, lower_packs
from tilewise.kernels.mlir.transform.writer import ANY, Writer
from tilewise.kernels.nest import printed
from tilewise.kernels.schedule import Schedule, loop_nest


def emit_normalised(normal: NormalForm, schedule: Schedule) -> str:
    """The transform module that makes a schedule's loops of an op as its author wrote it.

    Args:
        normal: the op, for this schedule.
        schedule: that one.

    Raises:
        ScheduleError: the schedule cannot be applied to the problem.
        LoweringError: it can, but not to this op.
    """
    loop_lines = tuple(printed(loop_nest(normal.problem, schedule))) if normal.has_own_loops else ()

    def opening(writer: Writer, handle: str) -> str:
        return _normalised(normal, writer, handle)

    return emit_on(schedule, normal.form, opening, _shared(normal), loop_lines)


def _shared(normal: NormalForm) -> list[str]:
    """The named sequences that make the normal form."""
    packed = normal.packing
    units = [drop_unit_axes()] if normal.has_units or packed.sizes else []
    packs = [lower_packs(result_moves=packed.moves[-1] is not None)] if packed.sizes else []
    moves = [
        epilogue_matcher(name, move.extents, inputs=1)
        for name, move in _vector_moves(normal).items()
    ]
    return [*units, *packs, *moves]


def _normalised(normal: NormalForm, writer: Writer, handle: str) -> str:
    """Lines that make the normal form of the op behind a handle; a handle on that."""
    w = writer
    w.line("// the normal form: loops by what they do, and none of one step")
    if normal.form.op != "linalg.generic":
        handle = w.generalize(handle, "generic")
    if normal.has_units:
        w.include("drop_unit_axes")
        handle = w.collect("contraction")
    if normal.interchange != tuple(range(len(normal.interchange))):
        handle = w.interchange(handle, normal.interchange)
    return _packed(normal, w, handle) if normal.packing.sizes else handle


def _packed(normal: NormalForm, writer: Writer, handle: str) -> str:
    """Lines that pack whole operands; a handle on the op over what is packed."""
    w = writer
    named = zip("ABC", normal.names, strict=True)
    forms = "; ".join(f"{name}[{', '.join(of)}]" for name, of in named)
    w.line(f"// one packed form: {forms}")
    packed = w.name("packed_op")
    sizes = list(normal.packing.sizes)
    w.line(
        f"{packed} = transform.structured.pack {handle} packed_sizes = {sizes} : ({ANY}) -> {ANY}"
    )
    for operand, order in zip((*normal.numbers, None), normal.packing.turned, strict=True):
        if order is not None:
            packed = _turned(w, packed, operand, order)
    w.include("lower_packs")
    w.include("drop_unit_axes")
    for name, move in _vector_moves(normal).items():
        copies, _ = w.tile_for(w.collect(name), move.tile)
        w.line(f"transform.structured.vectorize {copies} : {ANY}")
    return w.collect("contraction")


def _turned(writer: Writer, packed: str, operand: int | None, order: Dims) -> str:
    """Lines that put a packed operand's dims in another order; a handle on the op.

    Args:
        writer: of the script.
        packed: a handle on the op.
        operand: number of an input; None for the result.
        order: of what is packed, by the order that it has.
    """
    w = writer
    pack, turned, again, none = (w.name(n) for n in ("pack", "turned", "turned_pack", "turned_out"))
    if operand is None:
        found = f"get_consumers_of_result {packed}[0]"
    else:
        found = f"get_producer_of_operand {packed}[{operand}]"
    w.line(f"{pack} = transform.{found} : ({ANY}) -> {ANY}")
    w.line(
        f"{turned}, {again}, {none} = transform.structured.pack_transpose {pack} "
        f"with_compute_op({packed}) inner_perm = {list(order)} "
        f": ({ANY}, {ANY}) -> ({ANY}, {ANY}, {ANY})"
    )
    return turned


def _vector_moves(normal: NormalForm) -> dict[str, Move]:
    """The copies that become vectors, by the name of what matches them; the others stay scalar.

    They are told apart by their extents. A contraction without a reduction would be found as one.
    """
    if normal.form.nest.k not in normal.form.dims:
        return {}
    found: dict[str, set[Move]] = {}
    for move in filter(None, normal.packing.moves):
        found.setdefault("_".join(["move", *map(str, move.extents)]), set()).add(move)
    alike = {name: moves.pop() for name, moves in found.items() if len(moves) == 1}
    return {name: move for name, move in alike.items() if max(move.tile) > 1}
