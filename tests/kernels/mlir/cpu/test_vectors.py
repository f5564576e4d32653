"""The check that vectors run along the columns, and what it makes of those that do not."""

import pytest
from iree.compiler import ir

from tilewise.kernels.mlir.cpu.script import notes
from tilewise.kernels.mlir.lowering.apply import StageError
from tilewise.kernels.mlir.lowering.structure import check_structure
from tilewise.kernels.mlir.payload.function import payload
from tilewise.kernels.problem import parse_problem

PRODUCT = """
func.func @f(%a: vector<VECTOR>, %n: index) -> vector<VECTOR> {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %r = scf.for %i = %zero to %n step %one iter_args(%c = %a) -> (vector<VECTOR>) {
    %p = arith.mulf %c, %a : vector<VECTOR>
    scf.yield %p : vector<VECTOR>
  }
  return %r : vector<VECTOR>
}
"""


def check(vector: str, columns: int, lanes: int) -> bool:
    with ir.Context(), ir.Location.unknown():
        module = ir.Module.parse(PRODUCT.replace("VECTOR", vector))
        return check_structure(module, columns, lanes)


def test_vectors_of_the_register_steps_columns_pass() -> None:
    assert check("32xf32", 64, 32)
    assert check("5x32xf32", 64, 32)


@pytest.mark.parametrize("vector", ["4xf32", "32x4xf32"])
def test_vectors_along_another_dim_do_not(vector: str) -> None:
    with pytest.raises(StageError, match=r"vectors of 4 .* 32 lanes") as caught:
        check(vector, 64, 32)
    assert caught.value.failure == "structure"


def test_with_one_column_there_need_be_none() -> None:
    assert check("4xf32", 1, 1)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ("ci=16,co=16,groups=16", None),
        ("ci=16,co=16,groups=16,pad=1", None),
        ("ci=16,co=16,groups=16,pad=1,layout=nchw_fchw", "copied with their padding"),
        ("ci=32,co=16,groups=16,pad=1,layout=nchw_fchw", "copied with their padding"),
        ("ci=16,co=32,groups=16", "spreads each group's channels"),
        ("ci=16,co=32,groups=16,layout=nchw_fchw", None),
        ("ci=16,co=16,groups=16,stride=2,layout=nchw_fchw", "parted"),
        ("ci=16,co=16,groups=16,stride=2,dilation=2,layout=nchw_fchw", "gathered plane by plane"),
        ("ci=32,co=16,groups=16,stride=2,layout=nchw_fchw", "gathered ahead"),
        ("ci=18,co=2,groups=2", "scalars"),  # nine inputs: each group is a product of its own
    ],
)
def test_scripts_of_groups_say_what_they_do_otherwise(keys: str, said: str | None) -> None:
    found = notes(parse_problem(f"conv2d:n=1,h=8,w=8,{keys},kh=3,kw=3,dtype=f32"))
    assert [said in note for note in found] == ([True] if said else [])


@pytest.mark.parametrize(
    ("single", "more", "has_maps"),
    [
        ("m=16,n=1,k=8,dtype=f32", "m=16,n=2,k=8,dtype=f32", (True, False)),
        ("m=1,n=16,k=8,dtype=f32,transpose_a", "m=2,n=16,k=8,dtype=f32,transpose_a", (False, True)),
    ],
)
def test_a_single_row_or_column_is_seen_as_it_lies(
    single: str, more: str, has_maps: tuple[bool, bool]
) -> None:
    texts = [payload(parse_problem(f"matmul:{keys}")) for keys in (single, more)]
    assert "tensor<8xf32> into tensor<1x8xf32>" in texts[0]
    assert tuple("indexing_maps" in text for text in texts) == has_maps
