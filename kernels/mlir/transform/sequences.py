"""Named sequences that scripts share, and matchers that find ops whose handles were lost.

Each is a template of MLIR in `named_sequences/`, and none depends on a problem. Their order
matters: accumulators stay in registers only if the kernel is vectorised on tensors, its accesses
are folded into transfers, and the accumulator's are hoisted out of the reduction before
bufferisation. Contractions become outer products last.
"""

import functools
import re
from pathlib import Path
from string import Template

NAMED_SEQUENCES = Path(__file__).with_name("named_sequences")
_WHOLE_LINES = re.compile(r"( *)\$(\w+)\n")


def named_sequence(template: str, **values: object) -> str:
    """Return the text of a named sequence (or of a fragment of one), by its template."""
    return filled(NAMED_SEQUENCES / f"{template}.mlir", **values)


def filled(path: Path, **values: object) -> str:
    """Return the text of a template with a value for every `$placeholder`.

    A placeholder alone on its line stands for whole lines with its indentation, or for none.
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


def lower_packs(*, result_moves: bool) -> str:
    """Return the sequence that lowers packs of whole operands to transposes.

    `result_moves` says whether the result is transposed as well.
    """
    result = named_sequence(f"fragments/result_{'moves' if result_moves else 'stays'}")
    return named_sequence("lower_packs", result=result)


def bufferize(what: str, folds_aliases: bool = False) -> str:
    """Return the sequence from tensors to buffers, with the comment `what`.

    With `folds_aliases` accesses to views become accesses to their buffers.
    """
    fold_aliases = named_sequence("fragments/fold_aliases") if folds_aliases else ""
    return named_sequence("bufferize", what=what, fold_aliases=fold_aliases)


def hoist_accumulators(widens: bool) -> str:
    """Return the sequence that keeps accumulators in registers; `widens` if the body does."""
    sink_casts = named_sequence("fragments/sink_casts") if widens else ""
    return named_sequence("hoist_accumulators", sink_casts=sink_casts)


def pack_panels(
    lanes: int, sizes: list[int], panels_first: tuple[int, ...], operand: int = 1
) -> str:
    """Return the sequence that packs B, the op's operand `operand`, to panels of `lanes` columns.

    `sizes` are packed sizes of the iteration dims, 0 for none; `panels_first` is the outer
    permutation.
    """
    return named_sequence(
        "pack_panels",
        lanes=lanes,
        packed_sizes=sizes,
        outer_perm=list(panels_first),
        operand=operand,
    )


def pack_epilogue(lanes: int, sizes: list[int], packed: dict[str, int]) -> str:
    """Return the sequence that gives the epilogue's C the shape that packing B gives it.

    `packed` holds the epilogue's operands that change their shape: C, and a bias along the columns.
    """
    reshaped = "".join(
        named_sequence("fragments/reshaped_operand", name=name, index=index)
        for name, index in packed.items()
    )
    return named_sequence(
        "pack_epilogue", lanes=lanes, packed_sizes=sizes, reshaped_operands=reshaped
    )


def epilogue_matcher(name: str, sizes: tuple[int, ...], inputs: int) -> str:
    """Return a matcher for elementwise ops on a tile of `sizes`, with some inputs."""
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
    """Return a matcher for elementwise ops with `rank` dims."""
    return named_sequence(
        "match_elementwise",
        name=name,
        title=f"{rank} dims",
        rank=_has_count("rank", "wanted_rank", rank),
    )


def contraction_matcher(name: str, kinds: str | None, body: tuple[str, str]) -> str:
    """Return a matcher for linalg ops whose body multiplies and adds.

    `kinds` has `x` (parallel) or `k` (reduction) for each iteration dim; None matches any.
    """
    dims = [_has_count("rank", "wanted", len(kinds))] if kinds else []
    for index, kind in enumerate(kinds or ""):
        word = "reduction" if kind == "k" else "parallel"
        dims.append(named_sequence("fragments/dim_has_kind", index=index, kind=word))
    return named_sequence(
        "match_contraction",
        name=name,
        title=f"over {' '.join(kinds)} (k is a reduction)" if kinds else "of any dims",
        dims="".join(dims),
        body=", ".join(f'"{operation}"' for operation in body),
    )


def _has_count(what: str, wanted: str, count: int) -> str:
    """Return lines that check the count of `what`; `wanted` names the constant."""
    return named_sequence("fragments/has_count", what=what, wanted=wanted, count=count)
