"""The named sequences that every script shares: one job each, none depends on a problem.

Their text lies in `named_sequences/`, one template each. Their order matters. Accumulators
stay in registers only if the kernel is vectorised on tensors, its accesses are folded into
transfers, and the accumulator's are hoisted out of the reduction before bufferisation;
contractions become outer products last.
"""

from pathlib import Path

from tilewise.kernels.mlir.transform.templates import filled

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
