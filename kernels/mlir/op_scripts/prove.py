"""The script of a user's op, and its proof on the op as written."""

from dataclasses import replace
from functools import partial

from tilewise.kernels.mlir.cpu.register_tile import vector_lanes
from tilewise.kernels.mlir.cpu.script import emit_on
from tilewise.kernels.mlir.frontend.graph import LoneOp
from tilewise.kernels.mlir.frontend.nest import Dims
from tilewise.kernels.mlir.frontend.read import USUAL_LIMITS, ReadLimits
from tilewise.kernels.mlir.op_scripts.normal_form import (
    NormalForm,
    is_of_problem,
    normal_form,
    schedulable,
)
from tilewise.kernels.mlir.op_scripts.packing import PackingCopy
from tilewise.kernels.mlir.payload.function import payload
from tilewise.kernels.mlir.proof.proof import ScriptProof, annotated, run_child
from tilewise.kernels.mlir.proof.prove import REPEAT_SECONDS, prove
from tilewise.kernels.mlir.transform.module import mlir_version, with_function
from tilewise.kernels.mlir.transform.sequences import epilogue_matcher, lower_packs, named_sequence
from tilewise.kernels.mlir.transform.writer import ANY, SequenceWriter
from tilewise.kernels.nest import printed
from tilewise.kernels.schedule import Schedule, loop_nest
from tilewise.kernels.system.typed_json import to_json


def emit_for_op(normal: NormalForm, schedule: Schedule) -> str:
    """Return the transform module that makes a schedule's loops of an op as written.

    Raises:
        ScheduleError: the schedule cannot be applied to the problem.
        LoweringError: it cannot be applied to this op.
    """
    loop_lines = tuple(printed(loop_nest(normal.problem, schedule))) if normal.has_own_loops else ()
    opening = partial(_whole_script, normal)
    return emit_on(schedule, normal.form, opening, _shared(normal), loop_lines)


def _shared(normal: NormalForm) -> list[str]:
    """Return the named sequences that normalise the op."""
    packed = normal.packing
    units = [named_sequence("drop_unit_axes")] if normal.has_units or packed.sizes else []
    packs = [lower_packs(result_moves=packed.moves[-1] is not None)] if packed.sizes else []
    moves = [
        epilogue_matcher(name, move.extents, inputs=1)
        for name, move in _vector_moves(normal).items()
    ]
    return [*units, *packs, *moves]


def _whole_script(normal: NormalForm, w: SequenceWriter, handle: str) -> str:
    """Write lines that normalise the op of a handle; return the new handle."""
    w.line("// the normal form: loops by what they do, and none of one step")
    if normal.form.op != "linalg.generic":
        handle = w.generalize(handle, "generic")
    if normal.has_units:
        w.include("drop_unit_axes")
        handle = w.collect("contraction")
    if normal.interchange != tuple(range(len(normal.interchange))):
        handle = w.interchange(handle, normal.interchange)
    return _packed_lines(normal, w, handle) if normal.packing.sizes else handle


def _packed_lines(normal: NormalForm, w: SequenceWriter, handle: str) -> str:
    """Write lines that pack whole operands; return a handle on the op over them."""
    named = zip("ABC", normal.names, strict=True)
    forms = "; ".join(f"{name}[{', '.join(of)}]" for name, of in named)
    w.line(f"// one packed form: {forms}")
    op = f"structured.pack {handle} packed_sizes = {list(normal.packing.sizes)}"
    packed = w.handle("packed_op", op)
    operands = (*normal.form.operands, None)
    for operand, order in zip(operands, normal.packing.transposed, strict=True):
        if order is not None:
            packed = _transpose_lines(w, packed, operand, order)
    w.include("lower_packs")
    w.include("drop_unit_axes")
    for name, move in _vector_moves(normal).items():
        copies, _ = w.tile_for(w.collect(name), move.tile)
        w.vectorize(copies)
    return w.collect("contraction")


def _transpose_lines(w: SequenceWriter, packed: str, operand: int | None, order: Dims) -> str:
    """Write lines that reorder a packed operand's dims; return a handle on the op."""
    pack, swapped, again, none = (w.name(n) for n in ("pack", "swapped", "repacked", "unused"))
    if operand is None:
        found = f"get_consumers_of_result {packed}[0]"
    else:
        found = f"get_producer_of_operand {packed}[{operand}]"
    w.line(f"{pack} = transform.{found} : ({ANY}) -> {ANY}")
    w.line(
        f"{swapped}, {again}, {none} = transform.structured.pack_transpose {pack} "
        f"with_compute_op({packed}) inner_perm = {list(order)} "
        f": ({ANY}, {ANY}) -> ({ANY}, {ANY}, {ANY})"
    )
    return swapped


def _vector_moves(normal: NormalForm) -> dict[str, PackingCopy]:
    """Return the copies that become vectors, by the names of their matchers.

    Extents distinguish them. Without a reduction the contraction would match as well.
    """
    if normal.form.nest.k not in normal.form.dims:
        return {}
    found: dict[str, set[PackingCopy]] = {}
    for move in filter(None, normal.packing.moves):
        found.setdefault("_".join(["move", *map(str, move.extents)]), set()).add(move)
    alike = {name: moves.pop() for name, moves in found.items() if len(moves) == 1}
    return {name: move for name, move in alike.items() if max(move.tile) > 1}


CHILD = "tilewise.kernels.mlir.op_scripts.child"


def prove_lone(
    lone: LoneOp, schedule: Schedule, *, seed: int = 0, limits: ReadLimits = USUAL_LIMITS
) -> ScriptProof:
    """Emit the script of an op and prove it; the proof's script has its header filled in.

    The script is applied to the op's payload, and the result compared with the problem's reference.
    A convolution with few channels per group is proven in the problem's payload, where another op
    stores its result. A failure of the script becomes part of the `ScriptProof`.

    Raises:
        UnsupportedError: no script can normalise the op.
        ScheduleError: the schedule cannot be applied to the problem.
        LoweringError: it cannot be applied to this op.
    """
    if is_of_problem(lone):
        return prove(
            schedulable(lone),
            schedule,
            seed=seed,
            seconds=limits.seconds,
            memory_bytes=limits.memory_bytes,
        )
    normal = normal_form(lone, schedule)
    script = emit_for_op(normal, schedule)
    form, nest = normal.form, normal.form.nest
    lanes = vector_lanes(form) if set(form.reductions) & set(form.dims) else 0
    request = {
        "payload": lone.payload,
        "script": script,
        "found": to_json(lone.found),
        "shapes": [lone.nest.a.shape, lone.nest.b.shape, lone.nest.c.shape],
        "seconds": limits.seconds,
        "memory_bytes": limits.memory_bytes,
        "repeat_s": REPEAT_SECONDS,
        "columns": lanes or nest.dim(nest.col).extent,
        "lanes": lanes,
        "seed": seed,
    }
    proof = ScriptProof.of(run_child(request, CHILD), mlir=mlir_version(), script=script)
    return replace(proof, script=annotated(script, proof))


def with_op(lone: LoneOp, script: str) -> str:
    """Return a script's module with the op's function, for `--transform-interpreter`."""
    function = payload(schedulable(lone)) if is_of_problem(lone) else lone.payload
    return with_function(function, script)
