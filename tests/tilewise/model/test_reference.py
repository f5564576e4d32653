import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.tilewise.conftest import Cli
from tilewise.kernels.mlir.iree.compiler import compile_file, compiled_text
from tilewise.kernels.mlir.iree.runtime import LoadedModule, open_device
from tilewise.kernels.oracle.operands import Array
from tilewise.model.reference import compile_reference, copying_script
from tilewise.model.signature import HAL, random_array, types_of

pytest.importorskip("iree.compiler", reason="IREE's compiler is absent")
pytest.importorskip("iree.runtime", reason="IREE's runtime is absent")

A, B, C, FLAT = "tensor<12x8xf32>", "tensor<8x16xf32>", "tensor<12x16xf32>", "tensor<192xf32>"
X, W, Y = "tensor<1x6x6x4xf32>", "tensor<3x3x4x8xf32>", "tensor<1x4x4x8xf32>"
GIVEN = f"%a: {A}, %b: {B}, %c: {C}"
SUM = f"%r = linalg.matmul ins(%a, %b : {A}, {B}) outs(%c : {C}) -> {C}"


def function(given: str, lines: list[str], **results: str) -> str:
    names = ", ".join(f"%{name}" for name in results)
    types = ", ".join(results.values())
    body = "".join(f"  {line}\n" for line in lines)
    return f"func.func @main({given}) -> ({types}) {{\n{body}  return {names} : {types}\n}}\n"


def convolved(x: Array, w: Array, y: Array) -> Array:
    return y + sum(x[:, i : i + 4, j : j + 4] @ w[i, j] for i in range(3) for j in range(3))


Numpy = Callable[..., list[Array]]
RETURNED = function(GIVEN, [SUM], c=C, r=C)
CASES: dict[str, tuple[str, Numpy]] = {
    "before the sum": (RETURNED, lambda a, b, c: [c, c + a @ b]),
    "after the sum": (function(GIVEN, [SUM], r=C, c=C), lambda a, b, c: [c + a @ b, c]),
    "reshaped": (
        function(
            GIVEN,
            [SUM, f"%flat = tensor.collapse_shape %c [[0, 1]] : {C} into {FLAT}"],
            flat=FLAT,
            r=C,
        ),
        lambda a, b, c: [c.ravel(), c + a @ b],
    ),
    "two sums": (
        function(
            GIVEN,
            [SUM, f"%s = linalg.matmul ins(%a, %b : {A}, {B}) outs(%r : {C}) -> {C}"],
            c=C,
            r=C,
            s=C,
        ),
        lambda a, b, c: [c, c + a @ b, c + 2 * (a @ b)],
    ),
    "a convolution": (
        function(
            f"%x: {X}, %w: {W}, %y: {Y}",
            [f"%r = linalg.conv_2d_nhwc_hwcf ins(%x, %w : {X}, {W}) outs(%y : {Y}) -> {Y}"],
            y=Y,
            r=Y,
        ),
        lambda x, w, y: [y, convolved(x, w, y)],
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("case", CASES)
def test_arguments_that_are_results_too_keep_their_values(case: str, tmp_path: Path) -> None:
    text, numpy = CASES[case]
    source, plain, copied = (tmp_path / name for name in ("m.mlir", "m.vmfb", "copied.vmfb"))
    source.write_text(text)
    compile_file(source, plain)
    assert compile_reference(source, copied, compiled_text(text, "preprocessing"), 60.0)
    modules = [LoadedModule(path.read_bytes(), open_device(1)) for path in (plain, copied)]
    takes, _ = types_of(str(modules[0].declaration("main")))
    random = np.random.default_rng(3)
    arrays = [random_array(kind, random) for kind in takes]
    given = [(array, HAL[kind.element]) for array, kind in zip(arrays, takes, strict=True)]
    results, overwritten = modules[1].results_and_writes("main", given)
    assert overwritten == ()
    for found, right in zip(results, numpy(*arrays), strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-4)
    assert modules[0].results_and_writes("main", given)[1] == (2,)


def test_each_element_type_has_a_copy_of_its_own() -> None:
    seen = "".join(
        f'%{i} = hal.tensor.import %arg{i} "x" : !hal.buffer_view -> tensor<{kind}>\n'
        for i, kind in enumerate(("f32", "4xf32", "4xf32", "2x3xi8", "2x3xi1", "?x3xf32", "5xbf16"))
    )
    script = copying_script(seen)
    assert script is not None
    kinds = [kind for kind in ("f32", "4xf32", "2x3xi8", "2x3xi1", "?x3xf32", "5xbf16")
             if f"filter_result_type = tensor<{kind}>" in script]  # fmt: skip
    assert len(kinds) == script.count("filter_result_type") == 6
    assert "tensor.empty(%copied_size0) : tensor<?x3xf32>" in script
    assert copying_script("no tensor") is None


@pytest.mark.full
def test_the_forms_that_write_over_a_result_are_named(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "returned.mlir"
    path.write_text(RETURNED)
    made = ("-o", str(tmp_path / "made"))
    done = cli("model", str(path), *made, "--trials", "1", "--no-ops", "--json")
    assert done.code == 1, done.err
    found = json.loads(done.out)
    forms = found["forms"]
    assert not forms["default"]["right"]
    assert forms["default"]["overwrites"] == [2]
    assert forms["data tiling"]["right"]
    assert all(form["right"] and not form["overwrites"] for name, form in forms.items()
               if name.startswith("library"))  # fmt: skip
    assert forms[found["best"]]["right"]
    last = done.err.strip().splitlines()[-1]
    assert "IREE's compiler writes over argument 2, which is a result too" in last
    assert "data tiling by" not in last.replace("library, data tiling by", "")


@pytest.mark.full
def test_a_network_is_not_refused_for_irees_fault(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "returned.mlir"
    path.write_text(RETURNED)
    done = cli("plan", str(path), "--trials", "1", "--layouts", "model", "--run")
    assert done.code == 0, done.err
    assert "IREE is wrong" in done.out
    assert "which is a result too (iree-org/iree#16168)" in done.out
