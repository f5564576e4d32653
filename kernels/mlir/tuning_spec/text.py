"""The text of a tuning spec: for each problem a matcher and the sizes of its op.

The file is for `iree-compile --iree-codegen-tuning-spec-path=FILE`, which applies it to each op
once; the first matcher of the `foreach_match` that accepts the op decides. The op is then marked
with `MARK` and the problem of the entry, so that proofs can check it.
"""

import json
import re
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tilewise.kernels.errors import ProofError, ScheduleError
from tilewise.kernels.mlir.payload.function import has_epilogue
from tilewise.kernels.mlir.transform.sequences import named_sequence
from tilewise.kernels.mlir.tuning_spec.config import LEVELS, Configuration, LevelName, TileSize
from tilewise.kernels.mlir.tuning_spec.form import LoopForm, form_of
from tilewise.kernels.problem import Problem, parse_problem

MARK = "tilewise.spec"
"""The attribute of an op with sizes from the spec: the problem of its entry."""
STACK_BYTES = 32768  # IREE's usual limit for a function's allocations
_BYTES = {"f32": 4, "f64": 8, "i32": 4}
_PARALLEL = ("distribution", "cache_parallel", "vector_common_parallel")
_HEAD = """\
module @tilewise_spec attributes {
  transform.with_named_sequence, iree_codegen.tuning_spec_with_default_entrypoint
} {
"""
_OP = "!transform.any_op"
_STORES = ("iree_codegen.store_to_buffer", "iree_tensor_ext.dispatch.tensor.store")
_EPILOGUES = ("linalg.generic",)
_LINE = re.compile(r"// (\w+): +(.*)")
_COMMENTS = ("speed", "peer", "beside")  # the last one in specs of version 0.2


@dataclass(frozen=True)
class SpecEntry:
    """One problem of a spec, with lines of comments above its matcher."""

    problem: Problem
    config: Configuration
    comments: tuple[str, ...] = ()

    @property
    def cuts(self) -> bool:
        """Whether the reduction is split, so that sums are in memory between its chunks.

        What surrounds the op then runs on one cache tile at a time, as one vector, unless it has
        sizes of its own.
        """
        return bool(self.config.tiles_at("cache_reduction"))


@dataclass(frozen=True)
class LeftOut:
    """A problem without an entry, and why."""

    problem: str
    reason: str


def spec_text(entries: Sequence[SpecEntry], comments: Sequence[str] = ()) -> str:
    """Return the module of a spec, with `comments` in its header.

    Of entries with equal `matcher_key`, the first with and the first without an epilogue match.

    Raises:
        UnsupportedError: a problem has no spec.
        ScheduleError: a configuration does not fit its problem's loops.
    """
    shared = Counter(matcher_key(entry.problem) for entry in entries)
    matchers = [
        _matcher(number, entry, _before(entry, shared[matcher_key(entry.problem)] > 1))
        for number, entry in enumerate(entries)
    ]
    pairs = ",\n".join(
        f"    @match_{number} -> @{'apply_around' if entry.cuts else 'apply_op_config'}"
        for number, entry in enumerate(entries)
    )
    config = (
        "transform.named_sequence @__kernel_config(\n"
        f"    %variant_op: {_OP} {{transform.consumed}}) -> {_OP}\n"
        "    attributes { iree_codegen.tuning_spec_entrypoint } {\n"
        "  %res = transform.foreach_match in %variant_op\n"
        f"{pairs} : ({_OP}) -> {_OP}\n"
        f"  transform.yield %res : {_OP}\n"
        "}\n"
    )
    around = ["apply_around"] if any(entry.cuts for entry in entries) else []
    applied = [named_sequence(name, mark=MARK) for name in ("apply_op_config", *around)]
    body = "\n".join([*applied, *matchers, config])
    header = "".join(f"// {line}\n" for line in ("flavor:   iree-spec", *comments))
    return f"{header}//\n{_HEAD}{textwrap.indent(body, '  ')}}}\n"


def matcher_key(problem: Problem) -> str:
    """Return what a problem's matcher requires; problems with equal keys match the same ops."""
    return "\n".join(_conditions(form_of(problem)))


def marks_in(text: str) -> list[str]:
    """Return the problems whose entries matched, from a module that a spec was applied to."""
    return re.findall(rf'{re.escape(MARK)} = "([^"]*)"', text)


def entry_of(script: str) -> SpecEntry:
    """Return the entry of a proven spec of one problem by its header, or raise ProofError."""
    lines = [(m[1], m[2]) for m in map(_LINE.fullmatch, script.splitlines()) if m]
    known = dict(reversed(lines))
    try:
        problem = parse_problem(known["problem"])
        config = Configuration.from_json(json.loads(known["steps"]))
    except (KeyError, ValueError) as error:
        raise ProofError(f"no spec of one problem: its header lacks {error}") from error
    comments = tuple(f"{name}: {value}" for name, value in lines if name in _COMMENTS)
    return SpecEntry(problem, config, comments)


def joined(entries: Sequence[SpecEntry], comments: Sequence[str] = ()) -> tuple[str, list[LeftOut]]:
    """Return one spec of several problems, and the problems whose op another entry matches.

    Problems that differ only in constant weights or in their epilogue's function are the same op.
    """
    kept: dict[tuple[str, bool], SpecEntry] = {}
    left_out = []
    for entry in entries:
        key = matcher_key(entry.problem), has_epilogue(entry.problem)
        first = kept.setdefault(key, entry)
        if first is not entry:
            reason = f"its op is matched by the entry of {first.problem}"
            left_out.append(LeftOut(entry.problem.canonical, reason))
    return spec_text(list(kept.values()), comments), left_out


def _before(entry: SpecEntry, is_shared: bool) -> tuple[str, ...]:
    """Return the ops of which one has to read the result; none if any may.

    They tell a problem from the one with an epilogue. If sums fit only in the result itself, an op
    fused after them would put them on the stack, which IREE refuses.
    """
    if is_shared and has_epilogue(entry.problem):
        return _EPILOGUES
    is_large = outgrows_stack(form_of(entry.problem), entry.config)
    return _STORES if is_shared or is_large else ()


def _matcher(number: int, entry: SpecEntry, before: tuple[str, ...]) -> str:
    form = form_of(entry.problem)
    given = {"op": "op", "config": "param", "name": "param"}
    conditions, root = _conditions(form), "op"
    if entry.cuts:
        given |= {"fill": "op", "sizes": "param"}
        conditions += [
            f"%fill = transform.get_producer_of_operand %op[2] : ({_OP}) -> {_OP}",
            f'transform.match.operation_name %fill ["linalg.fill"] : {_OP}',
            f"%sizes = transform.param.constant {_around_config(form, entry.config)} -> "
            "!transform.any_param",
        ]
    if before:
        root = "root"
        names = ", ".join(f'"{op}"' for op in before)
        conditions = [
            f"transform.match.operation_name %root [{names}] : {_OP}",
            f"%op = transform.get_producer_of_operand %root[0] : ({_OP}) -> {_OP}",
            *conditions,
        ]
    types = ", ".join(f"!transform.any_{kind}" for kind in given.values())
    info = compilation_info(form, entry.config)
    lines = [
        *(f"// {line}" for line in (entry.problem.canonical, *entry.comments)),
        f"transform.named_sequence @match_{number}(%{root}: {_OP} {{transform.readonly}})",
        f"    -> ({types}) {{",
        *(f"  {line}" for line in conditions),
        f"  %config = transform.param.constant {info} -> !transform.any_param",
        f'  %name = transform.param.constant "{entry.problem.canonical}" -> !transform.any_param',
        f"  transform.yield {', '.join(f'%{name}' for name in given)}",
        f"      : {types}",
        "}",
        "",
    ]
    return "\n".join(lines)


def _conditions(form: LoopForm) -> list[str]:
    """Return the ops of a matcher that reject other forms."""
    groups = _groups(form)
    results = ", ".join(f"%{name}" for name in groups)
    maps = ", ".join(_map(form, at) for at in (form.a, form.b, form.c))
    return [
        f"transform.iree.match.has_no_lowering_config %op : {_OP}",
        f"{results} = transform.iree.match.{form.op} %op,",
        f"  lhs_type = {form.a_type}, rhs_type = {form.a_type}, output_type = {form.c_type},",
        f"  indexing_maps = [{maps}]",
        f"  : {_OP} -> !transform.param<i64>",
        *(
            f"transform.iree.match.dims_equal %{name}, {list(sizes)} : !transform.param<i64>"
            for name, sizes in groups.items()
        ),
    ]


def _map(form: LoopForm, subscripts: tuple[str, ...]) -> str:
    place = {loop: f"d{at}" for at, loop in enumerate(form.loops)}
    indices = ", ".join(
        " ".join(place.get(word, word) for word in subscript.split()) for subscript in subscripts
    )
    return f"affine_map<({', '.join(place.values())}) -> ({indices})>"


def _groups(form: LoopForm) -> dict[str, tuple[int, ...]]:
    """Return the sizes that a matcher reports, by their names in its result, in its order."""
    loops = form.loops
    if form.op == "contraction":
        groups: dict[str, tuple[int, ...]] = {}
        for name, in_a, in_b in (("batch", True, True), ("m", True, False), ("n", False, True)):
            groups[name] = tuple(
                extent
                for loop, extent in form.parallel.items()
                if (loop in form.a) == in_a and (loop in form.b) == in_b
            )
        return groups | {"k": tuple(form.reduction.values())}
    return {
        "batch": (loops["n"],),
        "out_img": (loops["oh"], loops["ow"]),
        "out_ch": (loops["co"],),
        "filter": (loops["kh"], loops["kw"]),
        "in_ch": (loops["ci"],),
        "depth": (),
        "strides": form.strides,
        "dilations": form.dilations,
    }


def compilation_info(form: LoopForm, config: Configuration) -> str:
    """Return the attribute with an op's sizes; raise ScheduleError if a tile does not fit."""
    check_levels(form, config)
    levels = [
        f"{name} = {_sizes(form, tiles)}" for name in LEVELS if (tiles := config.tiles_at(name))
    ]
    peeled = ", {enable_loop_peeling}" if config.remainders == "peeled" else ""
    return (
        "#iree_codegen.compilation_info<"
        f"lowering_config = #iree_cpu.lowering_config<{', '.join(levels)}>, "
        "translation_info = #iree_codegen.translation_info<"
        f"pipeline = #iree_cpu.pipeline<{config.passes}>{peeled}>>"
    )


def _around_config(form: LoopForm, config: Configuration) -> str:
    """Return the attribute by which surrounding ops run one vector tile at a time."""
    sizes = {tile.dim: tile.size for tile in config.tiles_at("vector_common_parallel")}
    at = [sizes.get(loop, 1) for loop in form.parallel]
    return f"#iree_cpu.lowering_config<vector_inner_parallel = {at}>"


def outgrows_stack(form: LoopForm, config: Configuration) -> bool:
    """Return whether the sums between chunks of the reduction exceed IREE's stack limit."""
    if not config.tiles_at("cache_reduction"):
        return False
    held = dict(form.parallel)
    levels: tuple[LevelName, ...] = ("distribution", "cache_parallel")
    for level in levels:
        held |= {tile.dim: tile.size for tile in config.tiles_at(level)}
    return prod(held.values()) * _BYTES[form.c_type] > STACK_BYTES


def check_levels(form: LoopForm, config: Configuration) -> None:
    """Raise ScheduleError unless each tile is of a loop that its level tiles, once."""
    seen = set[tuple[str, str]]()
    for tile in config.tiles:
        loops = form.parallel if tile.at in _PARALLEL else form.reduction
        if tile.dim not in loops:
            raise ScheduleError(f"step {tile}: {tile.at} tiles {', '.join(loops)}")
        if (tile.at, tile.dim) in seen:
            raise ScheduleError(f"step {tile}: {tile.dim} is tiled twice at this level")
        if not 1 <= tile.size <= loops[tile.dim]:
            raise ScheduleError(f"step {tile}: give a size of 1 to {loops[tile.dim]}")
        seen.add((tile.at, tile.dim))


def _sizes(form: LoopForm, tiles: Sequence[TileSize]) -> str:
    """Return a list of sizes, 0 for loops without tiles, with its interchange if not trivial."""
    at = {loop: number for number, loop in enumerate(form.loops)}
    sizes = [0] * len(at)
    for tile in tiles:
        sizes[at[tile.dim]] = tile.size
    order = [at[tile.dim] for tile in tiles]
    if order == sorted(order):
        return str(sizes)
    moved = iter(order)
    interchange = [next(moved) if number in order else number for number in range(len(at))]
    return f"{{sizes = {sizes}, interchange = {interchange}}}"
