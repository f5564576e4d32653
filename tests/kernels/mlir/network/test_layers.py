"""Layers of packed networks: outlined once each, computed by scripts that prove."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.mlir.network import networks
from tests.kernels.mlir.network.here import pack
from tilewise.kernels.mlir.network.compute import (
    MOST_PRODUCTS,
    SETS_BYTES,
    SPARE_REGISTERS,
    LayerTile,
    emit_layer,
    tile_of,
)
from tilewise.kernels.mlir.network.pack import prove_layers
from tilewise.kernels.mlir.network.packing import Blocks
from tilewise.kernels.mlir.network.plan import Layer, LayerShape
from tilewise.kernels.mlir.proof.proof import ProofReply
from tilewise.kernels.target import Target, detect

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")

TARGET = Target("x", vector_bytes=64, vector_registers=32, l1_bytes=32 << 10)


def proven(layer: Layer, tile: LayerTile | None = None) -> ProofReply:
    """What the child of `verify` finds of a layer's script."""
    from tilewise.kernels.mlir.proof.child.prove import verify_here

    return verify_here(
        {
            "payload": layer.payload,
            "script": emit_layer(layer, tile or tile_of(layer.shape, TARGET)),
            "problem": None,
            "seed": 0,
            "repeat_s": 0.001,
        }
    )


@pytest.mark.full
def test_each_distinct_layer_and_fused_block_proves() -> None:
    layers = pack(networks.residual(), Blocks(16)).layers
    assert len(layers) == 8 and [layer.shape.is_pool for layer in layers].count(True) == 1
    # The residual and the relu come with the convolution that is the last to be added.
    assert sorted(layer.ends for layer in layers)[-2:] == [2, 2]
    assert {layer.shape.is_apart for layer in layers} == {True, False}
    for layer in layers:
        found = proven(layer)
        assert found.failure is None, f"{layer.where}: {found.message}"
        assert found.executed and found.vectorised != layer.shape.is_pool  # it multiplies nothing


@pytest.mark.full
def test_sums_start_from_a_bias_or_from_what_is_given() -> None:
    layers = pack(networks.residual("torch"), Blocks(16)).layers
    assert all(layer.shape.result[1] < layer.shape.row for layer in layers if layer.shape.row)
    given = [layer for layer in layers if not layer.has_start]
    own = [layer for layer in layers if layer.has_start and layer.shape.is_apart]
    for layer in (given[0], own[-1]):
        found = proven(layer)
        assert found.failure is None, f"{layer.where}: {found.message}"


@pytest.mark.full
def test_layers_in_bf16_and_products_alone_prove() -> None:
    layers = pack(networks.perceptron(), Blocks(16)).layers
    layers += pack(networks.products(8, (16, 32, 16)), Blocks(16)).layers
    assert [layer.shape.widens for layer in layers] == [True, True, True, False, False]
    assert [layer.ends for layer in layers] == [1, 1, 1, 0, 0]
    for layer in layers[2:]:
        found = proven(layer)
        assert found.failure is None and found.vectorised, f"{layer.where}: {found.message}"


def test_layers_that_are_alike_are_one() -> None:
    (layer,) = pack(networks.products(8, (32, 32, 32, 32)), Blocks(16)).layers
    assert len(layer.where) == 3 and len(set(layer.where)) == 3


def test_windows_of_single_channels_are_layers_of_vectors() -> None:
    layers = pack(networks.separable(), Blocks(16)).layers
    assert [layer.shape.is_by_channel for layer in layers] == [False, True, False]
    found = proven(layers[1])
    assert found.failure is None and found.vectorised, found.message
    assert layers[1].ends == 1


@pytest.mark.parametrize(("op", "rows"), [("max", 9), ("sum", 1)])
def test_large_windows_of_several_rows_keep_a_loop(op: str, rows: int) -> None:
    (layer,) = pack(networks.pool(op, 15, 7), Blocks(16)).layers
    script = emit_layer(layer, LayerTile(rows))
    assert script.count("transform.annotate %loop") == int(rows * 7 * 7 > MOST_PRODUCTS)
    found = proven(layer, LayerTile(rows))
    assert found.failure is None and found.executed, found.message


def test_the_header_tells_layer_and_error() -> None:
    layers = pack(networks.products(), Blocks(16)).layers
    (one,) = prove_layers(layers, detect())
    assert one.proof.ok, one.proof.message
    assert one.proof.gflops is not None and one.proof.gflops > 0
    for line in ("// layer: ", "// tile: ", f"// place:    {layers[0].where[0]}", "// error: "):
        assert line in one.proof.script


@given(
    st.integers(1, 300),
    st.integers(1, 30),
    st.integers(1, 64),
    st.sampled_from([4, 8, 16, 32]),
    st.sampled_from([64, 3072, 12288]),
)
def test_tiles_fit_registers_and_sets_and_divide_rows(
    row: int, line: int, block: int, columns: int, distance: int
) -> None:
    extents = (block, line, row, columns, 16)
    shape = LayerShape(extents, (0, 1, 2, 3), 2, 1, 0, True, distance, (4,), False)
    found = tile_of(shape, TARGET)
    assert not (row % found.rows or line % found.lines or block % found.blocks)
    lines = [i * distance % SETS_BYTES // 64 for i in range(found.rows)]
    assert max(map(lines.count, lines)) <= TARGET.l1_bytes // SETS_BYTES
    held = found.size * -(-columns // 16)
    assert found.size == 1 or held <= TARGET.vector_registers - SPARE_REGISTERS
