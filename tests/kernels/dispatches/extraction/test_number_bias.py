"""Biases that are one number, in every spelling: found again, and right when they run."""

import re

import numpy as np
import pytest

from tilewise.kernels.dispatches.compilation import compiled_with
from tilewise.kernels.dispatches.executable import LibraryEntry, compiled
from tilewise.kernels.dispatches.extraction.extract import cut_module, patterns_of
from tilewise.kernels.dispatches.library import text_of
from tilewise.kernels.mlir.iree.runtime import ELEMENTS, LoadedModule, open_device
from tilewise.kernels.oracle.operands import empty_aligned
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Pack, Register, Schedule
from tilewise.kernels.target import Target

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")

NUMBER = 3
INITS = {
    "fill": "%i = linalg.fill ins(%n : ELEMENT) outs(%e : RESULT) -> RESULT",
    "constant": "%i = arith.constant dense<NUMBER> : RESULT",
    "broadcast": "%v = arith.constant dense<NUMBER> : COLUMNS\n"
    "%i = linalg.broadcast ins(%v : COLUMNS) outs(%e : RESULT) dimensions = [0]",
}
ADDED = {
    "vector": ("%v = arith.constant dense<NUMBER> : COLUMNS", "%v : RESULT, COLUMNS", "COLUMN"),
    "filled vector": (
        "%ve = tensor.empty() : COLUMNS\n"
        "%v = linalg.fill ins(%n : ELEMENT) outs(%ve : COLUMNS) -> COLUMNS",
        "%v : RESULT, COLUMNS",
        "COLUMN",
    ),
    "whole": ("%v = arith.constant dense<NUMBER> : RESULT", "%v : RESULT, RESULT", "SAME"),
    "scalar": ("", "%n : RESULT, ELEMENT", "NONE"),
}
GENERIC = """%y = linalg.generic {{indexing_maps = [SAME, {at}SAME],
    iterator_types = ["parallel", "parallel"]}} ins(%s{reads}) outs(%e : RESULT) {{
  ^bb0(%q: ELEMENT, {argument}%o: ELEMENT):
    %t = arith.addADD %q, {added} : ELEMENT
    {last} : ELEMENT
  }} -> RESULT"""
MEANINGS = {
    "COLUMNS": "tensor<32xELEMENT>",
    "COLUMN": "affine_map<(i, j) -> (j)>",
    "RESULT": "tensor<6x32xELEMENT>",
    "SAME": "affine_map<(i, j) -> (i, j)>",
    "NONE": "affine_map<(i, j) -> ()>",
}


def function(name: str, spelling: str, element: str, *, relu: bool) -> str:
    """A product with a bias that is one number."""
    is_float = element == "f32"
    most = f"arith.max{'imumf' if is_float else 'si'}"
    last = f"%r = {most} %t, %z : ELEMENT\n    linalg.yield %r" if relu else "linalg.yield %t"
    end = "%s" if spelling in INITS else "%y"
    lines = [
        "%z = arith.constant ZERO : ELEMENT\n%n = arith.constant NUMBER : ELEMENT",
        "%e = tensor.empty() : RESULT",
        "%zeros = linalg.fill ins(%z : ELEMENT) outs(%e : RESULT) -> RESULT",
        INITS.get(spelling, ""),
        "%s = linalg.matmul ins(%x, %w : tensor<6x8xELEMENT>, tensor<8x32xELEMENT>) "
        f"outs({'%i' if spelling in INITS else '%zeros'} : RESULT) -> RESULT",
    ]
    if spelling == "body":
        lines.append(GENERIC.format(at="", reads=" : RESULT", argument="", added="%n", last=last))
    elif spelling in ADDED:
        made, reads, at = ADDED[spelling]
        lines += [made, GENERIC.format(at=f"{at}, ", reads=f", {reads}", argument="%b: ELEMENT, ",
                                       added="%b", last=last)]  # fmt: skip
    elif spelling == "tensors":
        lines.append(
            "%v = arith.constant dense<NUMBER> : RESULT\n%y = arith.addADD %s, %v : RESULT"
        )
    body = "\n".join([*lines, f"return {end} : RESULT"])
    text = (f"func.func @{name}(%x: tensor<6x8xELEMENT>, %w: tensor<8x32xELEMENT>) -> RESULT "
            f"{{\n{body}\n}}\n")  # fmt: skip
    for word, meaning in MEANINGS.items():
        text = re.sub(rf"\b{word}\b", meaning, text)
    point = ".0" if is_float else ""
    text = text.replace("NUMBER", f"{NUMBER}{point}").replace("ZERO", f"0{point}")
    return text.replace("addADD", "addf" if is_float else "addi").replace("ELEMENT", element)


CASES = [
    *((one, "f32", False) for one in (*INITS, *ADDED, "body", "tensors")),
    *((one, "f32", True) for one in ("vector", "body")),
    ("body", "i32", False),
]


@pytest.mark.full
def test_a_bias_that_is_a_number_is_fused_however_it_is_spelled(host: Target) -> None:
    pytest.importorskip("iree.runtime", reason="iree-base-runtime is not installed")
    module = "".join(function(f"f{at}", spelling, element, relu=relu)
                     for at, (spelling, element, relu) in enumerate(CASES))  # fmt: skip
    cuts = cut_module(module.encode())
    assert [cut.reason for cut in cuts] == [""] * len(CASES)
    schedule = Schedule((Pack("B"), Register(1, host.lanes("f32"))))
    kernels = [compiled(LibraryEntry(parse_problem(one), schedule), host)
               for one in dict.fromkeys(cut.problem for cut in cuts)]  # fmt: skip
    made = compiled_with(module, text_of(kernels, host, (), patterns_of(cuts)))
    assert len(made.kernels) == len(CASES)
    loaded, random = LoadedModule(made.code, open_device(1)), np.random.default_rng(2)
    for at, (spelling, element, relu) in enumerate(CASES):
        given = []
        for shape in ((6, 8), (8, 32)):
            given.append(empty_aligned(shape, np.float32 if element == "f32" else np.int32))
            given[-1][...] = random.integers(-4, 5, shape)
        (found,) = loaded.results(f"f{at}", [(one, ELEMENTS[element]) for one in given])
        right = given[0] @ given[1] + NUMBER
        np.testing.assert_array_equal(found, np.maximum(right, 0) if relu else right, spelling)
