"""Templates of MLIR text: `.mlir` files with `$placeholders`.

A file keeps the syntax of MLIR, braces included, and editors highlight it. A placeholder
alone on its line stands for whole lines: each gets the blanks in front of the placeholder,
and no lines at all leave none.


The named sequences that every script shares: one job each, none depends on a problem.

Their text lies in `named_sequences/`, one template each. Their order matters. Accumulators
stay in registers only if the kernel is vectorised on tensors, its accesses are folded into
transfers, and the accumulator's are hoisted out of the reduction before bufferisation;
contractions become outer products last.


Named sequences that find ops by what they are, where handles on them are lost.
"""

import functools
import re
from pathlib import Path
from string import Template

_WHOLE_LINES = re.compile(r"( *)\$(\w+)\n")


def filled(path: Path, **values: object) -> str:
    """The text of a template with a value in place of every placeholder.

    Args:
        path: of the template.
        values: by placeholder; text, or what prints as MLIR, such as a list of integers.

    Raises:
        KeyError: a placeholder has no value.
    """
    return "".join(_filled_line(line, values) for line in _lines(path))


@functools.cache
def _lines(path: Path) -> tuple[str, ...]:
    return tuple(path.read_text(encoding="utf-8").splitlines(keepends=True))


def _filled_line(line: str, values: dict[str, object]) -> str:
    whole = _WHOLE_LINES.fullmatch(line)
    if whole is None:
        return Template(line).substitute(values)
    blanks, name = whole.groups()
    return "".join(f"{blanks}{text}\n" for text in str(values[name]).splitlines())


NAMED_SEQUENCES = Path(__file__).with_name("named_sequences")


def named_sequence(template: str, **values: object) -> str:
    """The text of a named sequence (or of a fragment of one), by the name of its template."""
    return filled(NAMED_SEQUENCES / f"{template}.mlir", **values)


def cleanup() -> str:
    """The sequence that folds bounds and drops single-trip loops after tiling."""
    return named_sequence("cleanup")


def drop_unit_dims() -> str:
    """The sequence that makes a micro-tile a plain contraction, without dims of extent 1."""
    return named_sequence("drop_unit_dims")


def drop_unit_axes() -> str:
    """The sequence that drops loops and axes of one step from ops on whole tensors."""
    return named_sequence("drop_unit_axes")


def lower_packs(*, result_moves: bool) -> str:
    """The sequence that makes transposes of packs and unpacks of whole operands.

    Args:
        result_moves: whether the result is one of those that change their order.
    """
    result = named_sequence(f"fragments/result_{'moves' if result_moves else 'stays'}")
    return named_sequence("lower_packs", result=result)


def bufferize(what: str, folds_aliases: bool = False) -> str:
    """The sequence from tensors to buffers.

    Args:
        what: its comment.
        folds_aliases: whether accesses to views become accesses to the buffers themselves.
    """
    fold_aliases = named_sequence("fragments/fold_aliases") if folds_aliases else ""
    return named_sequence("bufferize", what=what, fold_aliases=fold_aliases)


def lower_vectors() -> str:
    """The sequence from contractions of vectors to fused multiply-adds and rank-1 accesses."""
    return named_sequence("lower_vectors")


def fuse_products() -> str:
    """The sequence that lets a product and a sum of floats become one operation."""
    return named_sequence("fuse_products")


def peel() -> str:
    """The sequence that takes a shorter last iteration apart; it fails where there is none."""
    return named_sequence("peel")


def add_lanes() -> str:
    """The sequence that makes one sum of the partial sums of an element."""
    return named_sequence("add_lanes")


def hoist_accumulators(widens: bool) -> str:
    """The sequence that keeps accumulators in registers.

    Args:
        widens: whether the body widens its operands.
    """
    sink_casts = named_sequence("fragments/sink_casts") if widens else ""
    return named_sequence("hoist_accumulators", sink_casts=sink_casts)


def pack_panels(
    lanes: int, sizes: list[int], panels_first: tuple[int, ...], operand: int = 1
) -> str:
    """The sequence that packs B to panels.

    Args:
        lanes: columns of a panel.
        sizes: packed size of each iteration dim of the contraction, 0 for none.
        panels_first: the outer permutation that puts the panels first.
        operand: the op's operand that is B.
    """
    return named_sequence(
        "pack_panels",
        lanes=lanes,
        packed_sizes=sizes,
        outer_perm=list(panels_first),
        operand=operand,
    )


def pack_epilogue(lanes: int, sizes: list[int], packed: dict[str, int]) -> str:
    """The sequence that lets the epilogue see C in the shape that packing B gives it.

    Args:
        lanes: columns of a panel.
        sizes: packed size of each iteration dim of the epilogue, 0 for none.
        packed: which of its operands change their shape, by name: C, and a bias along the
            columns.
    """
    reshaped = "".join(
        named_sequence("fragments/reshaped_operand", name=name, index=index)
        for name, index in packed.items()
    )
    return named_sequence(
        "pack_epilogue", lanes=lanes, packed_sizes=sizes, reshaped_operands=reshaped
    )


def epilogue_matcher(name: str, sizes: tuple[int, ...], inputs: int) -> str:
    """A matcher for the epilogue: elementwise on a tile of some sizes, with so many inputs."""
    dims = "".join(
        named_sequence("fragments/dim_has_size", index=index, size=size)
        for index, size in enumerate(sizes)
    )
    return named_sequence(
        "match_epilogue",
        name=name,
        title=" x ".join(map(str, sizes)) or "one element",
        rank=_has_count("rank", "wanted_rank", len(sizes)),
        num_inputs=_has_count("num_inputs", "wanted_num_inputs", inputs),
        dims=dims,
    )


def elementwise_matcher(name: str, rank: int) -> str:
    """A matcher for elementwise ops with so many dims."""
    return named_sequence(
        "match_elementwise",
        name=name,
        title=f"{rank} dims",
        rank=_has_count("rank", "wanted_rank", rank),
    )


def contraction_matcher(name: str, kinds: str | None, body: tuple[str, str]) -> str:
    """A matcher for linalg ops that multiply and accumulate.

    Args:
        name: of the sequence.
        kinds: for each iteration dim `x` (parallel) or `k` (reduction); None for any.
        body: the multiplication and the addition.
    """
    return named_sequence(
        "match_contraction",
        name=name,
        title=f"over {' '.join(kinds)} (k is a reduction)" if kinds else "of any dims",
        dims=_has_kinds(kinds) if kinds else "",
        body=", ".join(f'"{operation}"' for operation in body),
    )


def _has_kinds(kinds: str) -> str:
    """Lines that hold for ops with exactly these kinds of iteration dims."""
    words = ["reduction" if kind == "k" else "parallel" for kind in kinds]
    dims = [
        named_sequence("fragments/dim_has_kind", index=index, kind=word)
        for index, word in enumerate(words)
    ]
    return "".join([_has_count("rank", "wanted", len(kinds)), *dims])


def _has_count(what: str, wanted: str, count: int) -> str:
    """Lines that hold for ops with so many of `what`; `wanted` names the constant."""
    return named_sequence("fragments/has_count", what=what, wanted=wanted, count=count)
