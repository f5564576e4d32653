"""The named sequences that scripts share are MLIR, each from a template that is installed."""

import textwrap

import pytest
from iree.compiler import ir

from tilewise.kernels.mlir.transform import sequences
from tilewise.kernels.mlir.transform.module import MODULE
from tilewise.kernels.mlir.transform.sequences import (
    contraction_matcher,
    elementwise_matcher,
    epilogue_matcher,
)

BODY = ("arith.mulf", "arith.addf")
ALONE = (
    "add_lanes", "cleanup", "drop_unit_axes", "drop_unit_dims", "fuse_products", "lower_vectors",
    "peel", "peel_ops", "skip_products", "skip_taps", "split_lines", "spread_channels",
)  # fmt: skip


def shared(variant: bool) -> list[str]:
    """Every named sequence, with or without the lines that only some scripts have."""
    return [
        sequences.lower_packs(result_moves=variant),
        sequences.bufferize("C in place.", folds_aliases=variant),
        *map(sequences.named_sequence, ALONE),
        sequences.named_sequence("apply_op_config", mark="of.test"),
        sequences.named_sequence("apply_around", mark="of.test"),
        sequences.hoist_accumulators(widens=variant),
        sequences.pack_panels(16, [0, 16, 0], (0, 2, 1)),
        sequences.pack_epilogue(16, [0, 16], {"bias": 0, "c": 1} if variant else {"c": 0}),
        contraction_matcher("contraction", "xxk" if variant else None, BODY),
        elementwise_matcher("of_rank_2", 2),
        epilogue_matcher("epilogue", (4, 16) if variant else (), int(variant)),
    ]


@pytest.mark.parametrize("variant", [False, True])
def test_the_sequences_are_a_module_that_mlir_verifies(variant: bool) -> None:
    text = "\n".join(shared(variant))
    assert "$" not in text
    with ir.Context(), ir.Location.unknown():
        module = ir.Module.parse(f"{MODULE}{textwrap.indent(text, '  ')}}}\n")
        assert module.operation.verify()
        assert len(module.body.operations) == len(shared(variant))
