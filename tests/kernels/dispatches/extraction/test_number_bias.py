"""Biases that are one number, in every spelling: found again, and right when they run."""

import re
from collections.abc import Callable

import numpy as np
import pytest

from tilewise.kernels.dispatches.compilation import compiled_with
from tilewise.kernels.dispatches.executable import LibraryEntry, compiled
from tilewise.kernels.dispatches.extraction.extract import cut_module, patterns_of
from tilewise.kernels.dispatches.library import text_of
from tilewise.kernels.mlir.iree.runtime import ELEMENTS, LoadedModule, open_device
from tilewise.kernels.oracle.operands import Array, empty_aligned
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Pack, Register, Schedule
from tilewise.kernels.target import Target

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")

Numbers = Callable[[Array, Array], Array]


def product(x: Array, w: Array) -> Array:
    return x @ w


def pixels_first(x: Array, w: Array) -> Array:
    return sum((x[:, i : i + 4, j : j + 4] @ w[i, j] for i in range(3) for j in range(3)), 0)


def channels_first(x: Array, w: Array) -> Array:
    made = pixels_first(x.transpose(0, 2, 3, 1), w.transpose(2, 3, 1, 0))
    return made.transpose(0, 3, 1, 2)


OPS: dict[str, tuple[str, str, str, int, Numbers]] = {
    "linalg.matmul": ("6x8", "8x32", "6x32", 1, product),
    "linalg.conv_2d_nhwc_hwcf": ("1x6x6x4", "3x3x4x16", "1x4x4x16", 3, pixels_first),
    "linalg.conv_2d_nchw_fchw": ("1x4x6x6", "16x4x3x3", "1x16x4x4", 1, channels_first),
}
NUMBER = 3
INITS = {
    "fill": "%i = linalg.fill ins(%n : ELEMENT) outs(%e : RESULT) -> RESULT",
    "constant": "%i = arith.constant dense<NUMBER> : RESULT",
    "broadcast": "%v = arith.constant dense<NUMBER> : COLUMNS\n"
    "%i = linalg.broadcast ins(%v : COLUMNS) outs(%e : RESULT) dimensions = OTHERS",
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


def function(name: str, op: str, spelling: str, element: str, *, relu: bool = False) -> str:
    a, b, c, column, _ = OPS[op]
    rank = c.count("x") + 1
    dims = ", ".join(f"d{i}" for i in range(rank))
    add, most = (
        ("arith.addf", "arith.maximumf") if element == "f32" else ("arith.addi", "arith.maxsi")
    )
    last = f"%r = {most} %t, %z : ELEMENT\n  linalg.yield %r" if relu else "linalg.yield %t"
    begun = "%zeros" if spelling not in INITS else "%i"
    loops = ", ".join(['"parallel"'] * rank)
    lines = [
        "%z = arith.constant ZERO : ELEMENT\n%n = arith.constant NUMBER : ELEMENT",
        "%e = tensor.empty() : RESULT",
        "%zeros = linalg.fill ins(%z : ELEMENT) outs(%e : RESULT) -> RESULT",
        INITS.get(spelling, ""),
        f"%s = {op} ins(%x, %w : tensor<{a}xELEMENT>, tensor<{b}xELEMENT>) "
        f"outs({begun} : RESULT) -> RESULT",
    ]  # fmt: skip
    if spelling in ADDED:
        made, reads, at = ADDED[spelling]
        lines += [made, f"%y = linalg.generic {{indexing_maps = [SAME, {at}, SAME], iterator_types "
                  f"= [{loops}]}} ins(%s, {reads}) outs(%e : RESULT) {{",
                  f"^bb0(%q: ELEMENT, %b: ELEMENT, %o: ELEMENT):\n  %t = {add} %q, %b : ELEMENT",
                  f"  {last} : ELEMENT\n}} -> RESULT"]  # fmt: skip
    elif spelling == "body":
        lines += ["%y = linalg.generic {indexing_maps = [SAME, SAME], iterator_types = "
                  f"[{loops}]}} ins(%s : RESULT) outs(%e : RESULT) {{",
                  f"^bb0(%q: ELEMENT, %o: ELEMENT):\n  %t = {add} %q, %n : ELEMENT",
                  f"  {last} : ELEMENT\n}} -> RESULT"]  # fmt: skip
    elif spelling == "tensors":
        lines += [f"%v = arith.constant dense<NUMBER> : RESULT\n%y = {add} %s, %v : RESULT"]
    result = "%s" if spelling in INITS else "%y"
    text = (
        f"func.func @{name}(%x: tensor<{a}xELEMENT>, %w: tensor<{b}xELEMENT>) -> RESULT {{\n"
        + "\n".join(lines) + f"\nreturn {result} : RESULT\n}}\n"
    )  # fmt: skip
    point = "" if element == "i32" else ".0"
    for word, meaning in {
        "COLUMNS": f"tensor<{c.split('x')[column]}xELEMENT>",
        "COLUMN": f"affine_map<({dims}) -> (d{column})>",
        "RESULT": f"tensor<{c}xELEMENT>",
        "SAME": f"affine_map<({dims}) -> ({dims})>",
        "NONE": f"affine_map<({dims}) -> ()>",
        "OTHERS": str([i for i in range(rank) if i != column]),
        "NUMBER": f"{NUMBER}{point}",
        "ZERO": f"0{point}",
        "ELEMENT": element,
    }.items():
        text = (
            re.sub(rf"\b{word}\b", meaning, text)
            if word != "ELEMENT"
            else text.replace(word, meaning)
        )
    return text


CASES = [
    *(("linalg.matmul", one, "f32", False) for one in (*INITS, *ADDED, "body", "tensors")),
    *(("linalg.matmul", one, "f32", True) for one in ("vector", "body")),
    ("linalg.matmul", "body", "i32", False),
    *(("linalg.conv_2d_nhwc_hwcf", one, "f32", one == "scalar") for one in ("fill", "scalar")),
    *(("linalg.conv_2d_nchw_fchw", one, "f32", one == "body") for one in ("fill", "body")),
]


@pytest.mark.full
def test_a_bias_that_is_a_number_is_fused_however_it_is_spelled(host: Target) -> None:
    pytest.importorskip("iree.runtime", reason="iree-base-runtime is not installed")
    module = "".join(
        function(f"f{at}", op, spelling, element, relu=relu)
        for at, (op, spelling, element, relu) in enumerate(CASES)
    )
    cuts = cut_module(module.encode())
    assert [cut.reason for cut in cuts] == [""] * len(CASES)
    problems = dict.fromkeys(cut.problem for cut in cuts)
    schedule = Schedule(
        (
            Pack("B"),
            Register(1, host.lanes("f32")),
        )
    )
    kernels = [compiled(LibraryEntry(parse_problem(one), schedule), host) for one in problems]
    made = compiled_with(module, text_of(kernels, host, (), patterns_of(cuts)))
    assert len(made.kernels) == len(CASES)
    loaded, random = LoadedModule(made.code, open_device(1)), np.random.default_rng(2)
    for at, (op, spelling, element, relu) in enumerate(CASES):
        given = []
        for shape in OPS[op][:2]:
            sizes = tuple(map(int, shape.split("x")))
            given.append(empty_aligned(sizes, np.float32 if element == "f32" else np.int32))
            given[-1][...] = random.integers(-4, 5, sizes)
        (found,) = loaded.results(f"f{at}", [(one, ELEMENTS[element]) for one in given])
        right = OPS[op][4](*given) + NUMBER
        np.testing.assert_array_equal(found, np.maximum(right, 0) if relu else right, spelling)
