"""GGUF files: products of their matrices, operands as kernels take them, and broken files."""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis.strategies import binary, integers
from numpy.typing import NDArray

from tests.cases import cases
from tests.tilewise.conftest import Cli
from tilewise.errors import BadInputError
from tilewise.formats.gguf import GgufFile
from tilewise.kernels.oracle.operands import make_operands
from tilewise.kernels.problem import parse_problem

Array = NDArray[Any]
F32, F16, Q4_0, Q8_0, Q6_K = 0, 1, 2, 8, 14
RANDOM = np.random.default_rng(7)
BYTES = {F32: (1, 4), F16: (1, 2), Q4_0: (32, 18), Q8_0: (32, 34), Q6_K: (256, 210)}


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def written(tensors: dict[str, tuple[int, tuple[int, ...]]], alignment: int = 32) -> bytes:
    """A file with random tensors, given by type and shape, the reduction last."""
    values = [
        text("general.alignment") + struct.pack("<II", 4, alignment),
        text("tokens") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("bc"),
        text("scores") + struct.pack("<IIQ3f", 9, 6, 3, 1, 2, 3),
    ]
    records, data = b"", b""
    for name, (kind, shape) in tensors.items():
        data += b"\xff" * (-len(data) % alignment)
        records += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape[::-1], kind,
                                            len(data))  # fmt: skip
        block, size = BYTES[kind]
        blocks = RANDOM.integers(0, 256, (int(np.prod(shape)) // block, size), np.uint8)
        if block == 32:
            scales = RANDOM.uniform(0.1, 1, len(blocks)).astype("<f2")
            blocks[:, :2] = scales.view(np.uint8).reshape(-1, 2)
        data += blocks.tobytes()
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(values)) + b"".join(values)
    header += records
    return header + b"\xff" * (-len(header) % alignment) + data


MODEL = {
    "token_embd.weight": (F16, (50, 64)),
    "blk.0.attn_norm.weight": (F32, (64,)),
    "blk.0.attn_q.weight": (Q4_0, (48, 64)),
    "blk.0.attn_k.weight": (Q4_0, (48, 64)),
    "blk.0.ffn_up.weight": (Q8_0, (96, 64)),
    "blk.0.ffn_down.weight": (Q6_K, (64, 256)),
    "blk.0.experts": (Q4_0, (2, 32, 64)),
    "output.weight": (F16, (50, 64)),
}
WEIGHTS = "group=32,scale=f16,transpose_b,weights=constant"


def test_matrices_are_listed_with_their_products(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(written(MODEL))
    ran = cli("import", str(path), "--rows", "3", "--json")
    assert (ran.code, ran.err) == (0, "")
    found = json.loads(ran.out)
    assert {one["problem"]: one["count"] for one in found["problems"]} == {
        f"matmul:m=3,n=48,k=64,dtype=f32,b=i4,{WEIGHTS}": 2,
        f"matmul:m=3,n=96,k=64,dtype=f32,b=i8,{WEIGHTS}": 1,
        "matmul:m=3,n=50,k=64,dtype=f16,transpose_b,weights=constant": 1,
    }
    assert [one["reason"] for one in found["skipped"]] == [
        "is a table from which rows are read",
        "is of Q6_K; known are F32, F16, Q4_0, Q8_0, BF16",
        "has 3 axes, and a matrix has two",
    ]
    assert cli("import", str(path)).out.splitlines()[1].startswith("2      matmul:m=1,n=48")
    assert cli("import", str(path), "--rows", "0").code == 2
    (tmp_path / "module.mlir").write_text("module {}")
    assert cli("import", str(tmp_path / "module.mlir"), "--rows", "1").code == 2


def test_an_embedding_is_a_product_where_it_is_the_output_too() -> None:
    file = GgufFile(written({"token_embd.weight": (Q8_0, (50, 64))}))
    ((_, found),) = file.problems()
    assert str(found) == f"matmul:m=1,n=50,k=64,dtype=f32,b=i8,{WEIGHTS}"


@pytest.mark.parametrize("kind", [Q4_0, Q8_0])
@pytest.mark.parametrize("alignment", [32, 8])
def test_operands_are_those_of_the_problem_and_dequantise_as_the_format_says(
    kind: int, alignment: int
) -> None:
    source = written({"first": (F32, (3,)), "w": (kind, (5, 96))}, alignment)
    file = GgufFile(source)
    operands = file.operands("w")
    problem = {one.name: found for one, found in file.problems()}["w"]
    assert not isinstance(problem, str)
    expected = make_operands(problem)
    for name, array in operands.items():
        assert (array.shape, array.dtype) == (expected[name].shape, expected[name].dtype)
    wide = {name: array.astype(np.float64) for name, array in operands.items()}
    weights = parse_problem(problem.canonical).quantised_weights
    assert weights is not None
    assert np.array_equal(weights.dequantised(wide), decoded(source[file.tensors[1].start :], kind))


def decoded(raw: bytes, kind: int) -> Array:
    """Five rows of 96 elements, one after the other as the format describes them."""
    found, size = [], BYTES[kind][1]
    for at in range(0, 15 * size, size):
        (scale,), codes = struct.unpack("<e", raw[at : at + 2]), raw[at + 2 : at + size]
        for i in range(32):
            if kind == Q8_0:
                found.append(scale * struct.unpack("b", codes[i : i + 1])[0])
            else:
                found.append(scale * ((codes[i % 16] >> (4 if i >= 16 else 0) & 15) - 8))
    return np.array(found).reshape(5, 96)


def test_operands_are_of_quantised_matrices_alone() -> None:
    file = GgufFile(written(MODEL))
    for name, why in (("absent", "has no tensor"), ("output.weight", "but F16"),
                      ("blk.0.experts", "no matrix")):  # fmt: skip
        with pytest.raises(BadInputError, match=why):
            file.operands(name)


@cases(500)
@given(at=integers(0, 400), new=binary(min_size=1, max_size=8), length=integers(0, 1 << 16))
def test_broken_files_are_refused_or_read(at: int, new: bytes, length: int) -> None:
    source = bytearray(SOURCE)
    source[at : at + len(new)] = new
    try:
        file = GgufFile(bytes(source[:length]))
        for tensor, found in file.problems():
            if "b=i" in str(found):
                file.operands(tensor.name)
    except BadInputError as error:
        assert "\n" not in str(error) and len(str(error)) < 400


SOURCE = written(MODEL)


def test_a_broken_file_is_one_line_and_exit_code_2(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(SOURCE[:-1])
    ran = cli("import", str(path))
    assert ran.code == 2
    assert ran.err == "tilewise: model.gguf: 'output.weight' ends behind the end of the file\n"
