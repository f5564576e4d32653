"""The function beside a driver that packs constant weights before it runs."""

from kernels.native.driver.parameters import extent, step, stride
from kernels.native.driver.scope import Scope


def print_prepare(scope: Scope) -> str:
    """The body of a function that packs all of B, chunk by chunk, before the driver runs.

    Panels of one chunk lie together, whatever the blocks of the nest, so an address
    in them depends on the column and on the chunk alone.
    """
    structure, space = scope.structure, scope.structure.space
    cols, depth, along = extent(space.col), extent(space.stream), stride("b", space.col)
    lead = space.lead[0] if space.lead else ""  # the only one of a constant B
    chunk = step(space.stream, 0) if step(space.stream, 0) in scope.parameters else depth
    batches, between = (extent(lead), stride("b", lead)) if lead else ("1", "0")
    row = along if structure.b_transposed else "b_stream"
    return (
        f"    for i in range({batches}):\n"
        f"        for start in range(0, {depth}, {chunk}):\n"
        f"            depth = min({chunk}, {depth} - start)\n"
        f"            to = b_panels + i * batch_bytes + start // {chunk} * chunk_bytes\n"
        f"            source = b + (i * {between} + start * b_stream) * size\n"
        f"            pack_b(pack_b_panel, to, source, {cols}, register_cols, taps,\n"
        f"                   b_tap_source, depth, {row}, {along}, size, word_depth,\n"
        "                   word_size, sums_size)\n"
    )
