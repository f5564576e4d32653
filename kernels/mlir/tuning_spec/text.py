"""A configuration as IREE's attributes.

The text of a tuning spec: for each problem a matcher and the sizes that its op gets.

The file is for `iree-compile --iree-codegen-tuning-spec-path=FILE`. IREE's compiler asks it for
each op once: the first matcher of the one `foreach_match` that takes the op decides. An op that
got its sizes from the file is marked by `MARK` and the name of its matcher, by which a proof, and
anybody else, sees that it did.

"""

import re
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tilewise.kernels.errors import ScheduleError
from tilewise.kernels.mlir.tuning_spec.config import LEVELS, Configuration, LevelName, TileSize
from tilewise.kernels.mlir.tuning_spec.form import Form, Loop, form_of
from tilewise.kernels.problem import Problem

STACK_BYTES = 32768  # IREE's usual limit for a function's allocations
_BYTES = {"f32": 4, "f64": 8, "i32": 4}
_PARALLEL = ("distribution", "cache_parallel", "vector_common_parallel")


def compilation_info(form: Form, config: Configuration) -> str:
    """The attribute that gives an op of `form` the sizes of a configuration.

    Raises:
        ScheduleError: a tile does not fit the form.
    """
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


def around_config(form: Form, config: Configuration) -> str:
    """The attribute that has what is around an op done a tile of vectors at a time."""
    sizes = {tile.dim: tile.size for tile in config.tiles_at("vector_common_parallel")}
    at = [sizes.get(loop.name, 1) for loop in form.parallel]
    return f"#iree_cpu.lowering_config<vector_inner_parallel = {at}>"


def outgrows_stack(form: Form, config: Configuration) -> bool:
    """Whether the sums between chunks of the reduction are more than IREE lets the stack hold."""
    if not config.tiles_at("cache_reduction"):
        return False
    held = {loop.name: loop.extent for loop in form.parallel}
    levels: tuple[LevelName, ...] = ("distribution", "cache_parallel")
    for level in levels:
        held |= {tile.dim: tile.size for tile in config.tiles_at(level)}
    return prod(held.values()) * _BYTES[form.c_type] > STACK_BYTES


def check_levels(form: Form, config: Configuration) -> None:
    """Raise unless each tile is of a loop that its level tiles, once.

    Raises:
        ScheduleError: names the tile.
    """
    seen = set[tuple[str, str]]()
    for tile in config.tiles:
        loops = form.parallel if tile.at in _PARALLEL else form.reduction
        names = [loop.name for loop in loops]
        if tile.dim not in names:
            raise ScheduleError(f"step {tile}: {tile.at} tiles {', '.join(names)}")
        if (tile.at, tile.dim) in seen:
            raise ScheduleError(f"step {tile}: {tile.dim} is tiled twice at this level")
        if not 1 <= tile.size <= form.extent(tile.dim):
            raise ScheduleError(f"step {tile}: give a size of 1 to {form.extent(tile.dim)}")
        seen.add((tile.at, tile.dim))


def _sizes(form: Form, tiles: Sequence[TileSize]) -> str:
    """A list of sizes, 0 where a loop is not tiled; with its interchange where that matters."""
    at = {loop.name: number for number, loop in enumerate(form.loops)}
    sizes = [0] * len(at)
    for tile in tiles:
        sizes[at[tile.dim]] = tile.size
    order = [at[tile.dim] for tile in tiles]
    if order == sorted(order):
        return str(sizes)
    moved = iter(order)
    interchange = [next(moved) if number in order else number for number in range(len(at))]
    return f"{{sizes = {sizes}, interchange = {interchange}}}"


MARK = "tilewise.spec"
"""The attribute of an op that the spec has given its sizes: the problem of its entry."""

_HEAD = """\
module @tilewise_spec attributes {
  transform.with_named_sequence, iree_codegen.tuning_spec_with_default_entrypoint
} {
"""
_APPLY = """\
transform.named_sequence @apply_op_config(
    %op: !transform.any_op {transform.readonly},
    %config: !transform.any_param {transform.readonly},
    %name: !transform.any_param {transform.readonly}) {
  transform.annotate %op "compilation_info" = %config : !transform.any_op, !transform.any_param
  transform.annotate %op "$mark" = %name : !transform.any_op, !transform.any_param
  transform.yield
}
""".replace("$mark", MARK)
# Between chunks of the reduction the sums lie in memory, so what comes before the first chunk and
# after the last is done a cache's tile at a time, as one vector, unless it has sizes of its own.
_APPLY_BOTH = """\
transform.named_sequence @apply_around(
    %op: !transform.any_op {transform.readonly},
    %config: !transform.any_param {transform.readonly},
    %name: !transform.any_param {transform.readonly},
    %fill: !transform.any_op {transform.readonly},
    %sizes: !transform.any_param {transform.readonly}) {
  transform.annotate %op "compilation_info" = %config : !transform.any_op, !transform.any_param
  transform.annotate %op "$mark" = %name : !transform.any_op, !transform.any_param
  transform.annotate %fill "lowering_config" = %sizes : !transform.any_op, !transform.any_param
  %users = transform.get_consumers_of_result %op[0] : (!transform.any_op) -> !transform.any_op
  transform.annotate %users "lowering_config" = %sizes : !transform.any_op, !transform.any_param
  transform.yield
}
""".replace("$mark", MARK)

_STORES = ("iree_codegen.store_to_buffer", "iree_tensor_ext.dispatch.tensor.store")
_EPILOGUES = ("linalg.generic",)


@dataclass(frozen=True)
class Entry:
    """One problem of a spec.

    Attributes:
        problem: whose op is matched.
        config: its sizes.
        told: lines above its matcher, such as its gain.
    """

    problem: Problem
    config: Configuration
    told: tuple[str, ...] = ()


def spec_text(entries: Sequence[Entry], told: Sequence[str] = ()) -> str:
    """The module of a spec.

    Args:
        entries: of those with one `matcher_key` one may have an epilogue, and one none; the
            others never match.
        told: lines of the header.

    Raises:
        UnsupportedError: a problem has no spec.
        ScheduleError: a configuration is not of its problem's loops.
    """
    shared = Counter(matcher_key(entry.problem) for entry in entries)
    matchers = [
        _matcher(number, entry, _before(entry, shared[matcher_key(entry.problem)] > 1))
        for number, entry in enumerate(entries)
    ]
    pairs = ",\n".join(
        f"    @match_{number} -> @{'apply_around' if _cuts(entry) else 'apply_op_config'}"
        for number, entry in enumerate(entries)
    )
    config = (
        "transform.named_sequence @__kernel_config(\n"
        "    %variant_op: !transform.any_op {transform.consumed}) -> !transform.any_op\n"
        "    attributes { iree_codegen.tuning_spec_entrypoint } {\n"
        "  %res = transform.foreach_match in %variant_op\n"
        f"{pairs} : (!transform.any_op) -> !transform.any_op\n"
        "  transform.yield %res : !transform.any_op\n"
        "}\n"
    )
    applied = [_APPLY, _APPLY_BOTH] if any(map(_cuts, entries)) else [_APPLY]
    body = "\n".join([*applied, *matchers, config])
    header = "".join(f"// {line}\n" for line in ("flavor:   iree-spec", *told))
    return f"{header}//\n{_HEAD}{textwrap.indent(body, '  ')}}}\n"


def matcher_key(problem: Problem) -> str:
    """What a problem's matcher asks of an op; equal keys match the same ops.

    Raises:
        UnsupportedError: the problem has no spec.
    """
    return "\n".join(_conditions(form_of(problem)))


def marks_in(text: str) -> list[str]:
    """The problems whose entries were taken, in a module after they were asked."""
    return re.findall(rf'{re.escape(MARK)} = "([^"]*)"', text)


def _cuts(entry: Entry) -> bool:
    """Whether the reduction is cut, so that the sums are written and read between its chunks."""
    return bool(entry.config.tiles_at("cache_reduction"))


def _before(entry: Entry, is_shared: bool) -> tuple[str, ...]:
    """The ops of which one has to read the result next; none where that is no matter.

    It tells a problem from the one with an epilogue. And sums that only the result itself has room
    for would lie on the stack if another op were fused behind them, which IREE refuses: a model
    would not compile any more.
    """
    problem = entry.problem
    if is_shared and has_epilogue(problem):
        return _EPILOGUES
    is_large = outgrows_stack(form_of(problem), entry.config)
    return _STORES if is_shared or is_large else ()


def has_epilogue(problem: Problem) -> bool:
    """Whether IREE fuses an elementwise op behind the problem's own."""
    return problem.has_bias or problem.has_relu


def _matcher(number: int, entry: Entry, before: tuple[str, ...]) -> str:
    form = form_of(entry.problem)
    given = {"op": "op", "config": "param", "name": "param"}
    conditions = [*_conditions(form)]
    if _cuts(entry):
        given |= {"fill": "op", "sizes": "param"}
        conditions += _fill(form, entry.config)
    root = "root" if before else "op"
    if before:
        conditions = [*_reader(before), *conditions]
    types = ", ".join(f"!transform.any_{kind}" for kind in given.values())
    info = compilation_info(form, entry.config)
    lines = [
        *(f"// {line}" for line in (entry.problem.canonical, *entry.told)),
        f"transform.named_sequence @match_{number}(%{root}: !transform.any_op "
        "{transform.readonly})",
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


def _reader(ops: tuple[str, ...]) -> list[str]:
    """The op as what one of these reads first."""
    names = ", ".join(f'"{op}"' for op in ops)
    return [
        f"transform.match.operation_name %root [{names}] : !transform.any_op",
        "%op = transform.get_producer_of_operand %root[0] : (!transform.any_op) -> "
        "!transform.any_op",
    ]


def _fill(form: Form, config: Configuration) -> list[str]:
    """What a matcher asks of the op's initial value, and the sizes of what is around the op."""
    return [
        "%fill = transform.get_producer_of_operand %op[2] : (!transform.any_op) -> "
        "!transform.any_op",
        'transform.match.operation_name %fill ["linalg.fill"] : !transform.any_op',
        f"%sizes = transform.param.constant {around_config(form, config)} -> !transform.any_param",
    ]


def _conditions(form: Form) -> list[str]:
    """The ops of a matcher that refuse what is not the form."""
    groups = _groups(form)
    results = ", ".join(f"%{name}" for name in groups)
    maps = ", ".join(_map(form, at) for at in (form.a, form.b, form.c))
    return [
        "transform.iree.match.has_no_lowering_config %op : !transform.any_op",
        f"{results} = transform.iree.match.{form.op} %op,",
        f"  lhs_type = {form.a_type}, rhs_type = {form.a_type}, output_type = {form.c_type},",
        f"  indexing_maps = [{maps}]",
        "  : !transform.any_op -> !transform.param<i64>",
        *(
            f"transform.iree.match.dims_equal %{name}, {list(sizes)} : !transform.param<i64>"
            for name, sizes in groups.items()
        ),
    ]


def _map(form: Form, subscripts: tuple[str, ...]) -> str:
    place = {loop.name: f"d{at}" for at, loop in enumerate(form.loops)}
    said = ", ".join(
        " ".join(place.get(word, word) for word in subscript.split()) for subscript in subscripts
    )
    return f"affine_map<({', '.join(place.values())}) -> ({said})>"


def _groups(form: Form) -> dict[str, tuple[int, ...]]:
    """The sizes that a matcher gives, by their names in its result, in its order."""
    if form.op == "contraction":

        def sizes(loops: tuple[Loop, ...], in_a: bool, in_b: bool) -> tuple[int, ...]:
            return tuple(
                loop.extent
                for loop in loops
                if (loop.name in form.a) == in_a and (loop.name in form.b) == in_b
            )

        return {
            "batch": sizes(form.parallel, True, True),
            "m": sizes(form.parallel, True, False),
            "n": sizes(form.parallel, False, True),
            "k": sizes(form.reduction, True, True),
        }
    stride, dilation = _steps_of(form)
    return {
        "batch": (form.extent("n"),),
        "out_img": (form.extent("oh"), form.extent("ow")),
        "out_ch": (form.extent("co"),),
        "filter": (form.extent("kh"), form.extent("kw")),
        "in_ch": (form.extent("ci"),),
        "depth": (),
        "strides": (stride, stride),
        "dilations": (dilation, dilation),
    }


def _steps_of(form: Form) -> tuple[int, int]:
    """Stride and dilation, from the subscript of the image's rows."""
    row = next(subscript for subscript in form.a if "+" in subscript)
    stride, dilation = (int(part.partition(" * ")[2] or 1) for part in row.split(" + ", maxsplit=1))
    return stride, dilation
