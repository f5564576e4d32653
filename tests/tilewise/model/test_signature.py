"""Types of the functions of a model, and references that leave arguments alone."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.tilewise.conftest import Cli, written
from tilewise.errors import TilewiseError
from tilewise.kernels.mlir.iree.compiler import compile_file, compiled_text
from tilewise.kernels.mlir.iree.runtime import LoadedModule, open_device
from tilewise.kernels.oracle.operands import Array
from tilewise.model import signature
from tilewise.model.reference import compile_reference, copying_script
from tilewise.model.signature import TensorType, declarations_in, entry_of, random_array, types_of
from tilewise.requirements import is_present


def test_types_are_read() -> None:
    said = "sync func @main(%input0: tensor<1x8x3xf32> {a.name = \\22x:0, y\\22}, %input1: " \
           "tensor<bf16>) -> (%output0: tensor<4xi64> {a.name = \\22z\\22})"  # fmt: skip
    assert types_of(said) == (
        [TensorType((1, 8, 3), "f32"), TensorType((), "bf16")],
        [TensorType((4,), "i64")],
    )


@pytest.mark.parametrize(("text", "reason"), [
    ("tensor<?x8xf32>", "static shape"), ("i32", "static shape"),
    ("tensor<4xcomplex<f32>>", "complex<f32> is not supported"),
    ("tensor<4x8xi4>", "i4 is not supported"),
])  # fmt: skip
def test_what_does_not_run_is_refused(text: str, reason: str) -> None:
    with pytest.raises(TilewiseError, match=reason):
        types_of(f"sync func @main(%input0: {text}) -> (%output0: tensor<4xf32>)")


def test_values_start_on_a_cache_line_and_are_of_their_type() -> None:
    types = {"f32": "float32", "i8": "int8", "bf16": "uint16", "i64": "int64"}
    for element, dtype in types.items():
        made = random_array(TensorType((3, 5), element), np.random.default_rng(0))
        assert made.ctypes.data % 64 == 0 and made.dtype == dtype and made.shape == (3, 5)
        assert (len(np.unique(made)) > 2) == (element != "i64")


def declared(module: str) -> dict[str, str]:
    """Return the declarations in a module, in which `VIEW` and `FENCE` are types of HAL."""
    return declarations_in(
        module.replace("VIEW", "!hal.buffer_view").replace("FENCE", "!hal.fence")
    )


def test_functions_of_torch_tensors_are_declared_by_what_the_compiler_makes_of_them() -> None:
    found = declared("""
  util.func public @net$async(%arg0: VIEW, %arg1: VIEW, %arg2: FENCE, %arg3: FENCE)
      -> (VIEW, VIEW) attributes {iree.abi.stub} {
    %0 = hal.tensor.import wait(%arg2) => %arg1 : VIEW -> tensor<4xi64>
    %1 = hal.tensor.import wait(%arg2) => %arg0 : VIEW -> tensor<1x8xf32>
    %2:2 = hal.tensor.barrier join(%1, %0 : tensor<1x8xf32>, tensor<4xi64>) => %arg3 : FENCE
    %3 = hal.tensor.export %2#0 : tensor<1x8xf32> -> VIEW
    %4 = hal.tensor.export %2#1 : tensor<4xi64> -> VIEW
    util.return %4, %3 : VIEW, VIEW
  }
  util.func public @net(%arg0: VIEW, %arg1: VIEW) -> VIEW {
    util.return %arg0 : VIEW
  }
""")
    image, numbers = TensorType((1, 8), "f32"), TensorType((4,), "i64")
    assert list(found) == ["net"]
    assert types_of(found["net"]) == ([image, numbers], [numbers, image])


def test_names_in_quotes_are_names() -> None:
    """PyTorch's exporter calls the graph of an ONNX model so."""
    said = 'iree.reflection = {iree.abi.declaration = "sync func @a b(%input0: i32) -> ()"}'
    module = """
  util.func public @"torch-jit-export$async"(%arg0: VIEW, %arg1: FENCE) -> VIEW {
    %0 = hal.tensor.import wait(%arg1) => %arg0 : VIEW -> tensor<3xf32>
    %1 = hal.tensor.export %0 : tensor<3xf32> -> VIEW
    util.return %1 : VIEW
  }
  util.func public @"torch-jit-export"(%arg0: VIEW) -> VIEW attributes {iree.abi.stub} {
    util.return %arg0 : VIEW
  }
  util.func public @"a b"(%arg0: i32) attributes {SAID} {
    util.return
  }
  util.func private @inner(%arg0: i32) {
    util.return
  }
"""
    found = declared(module.replace("SAID", said))
    assert list(found) == ["torch-jit-export", "a b"]
    array = TensorType((3,), "f32")
    assert types_of(found["torch-jit-export"]) == ([array], [array])
    with pytest.raises(TilewiseError, match="i32"):
        types_of(found["a b"])


def test_a_function_without_results_takes_nothing_of_the_next() -> None:
    found = declared("""
  util.func public @quiet$async(%arg0: VIEW, %arg1: FENCE, %arg2: FENCE) {
    util.return
  }
  util.func public @net(%arg0: VIEW) -> VIEW {
    %0 = hal.tensor.import %arg0 "input0" : VIEW -> tensor<3xf32>
    %1 = hal.tensor.export %0 : tensor<3xf32> -> VIEW
    util.return %1 : VIEW
  }
""")
    assert list(found) == ["quiet$async", "net"]
    assert types_of(found["net"]) == ([TensorType((3,), "f32")], [TensorType((3,), "f32")])
    with pytest.raises(TilewiseError, match="returns !hal"):
        types_of(found["quiet$async"])
    assert found["quiet$async"].endswith(": !hal.fence, %input2: !hal.fence) -> ()")


def test_the_function_that_runs_is_main_the_only_one_or_the_one_that_is_asked_for() -> None:
    assert entry_of(["other", "main"], None) == "main"
    assert entry_of(["f", "__init", "f$async"], None) == "f"
    assert entry_of(["f", "g"], "g") == "g"
    for functions, asked, why in (
        (["f", "g"], None, "has the functions f, g; name one by --entry"),
        (["f", "g"], "h", "has no function h; it has f, g"),
        (["__init"], None, "has no public function"),
    ):
        with pytest.raises(TilewiseError, match=why):
            entry_of(functions, asked)


needs_iree = pytest.mark.skipif(not is_present("iree.runtime"), reason="IREE's runtime is absent")
A, B, C, FLAT = "tensor<12x8xf32>", "tensor<8x16xf32>", "tensor<12x16xf32>", "tensor<192xf32>"
X, W, Y = "tensor<1x6x6x4xf32>", "tensor<3x3x4x8xf32>", "tensor<1x4x4x8xf32>"
GIVEN = f"%a: {A}, %b: {B}, %c: {C}"
SUM = f"%r = linalg.matmul ins(%a, %b : {A}, {B}) outs(%c : {C}) -> {C}"
SECOND = f"%s = linalg.matmul ins(%a, %b : {A}, {B}) outs(%r : {C}) -> {C}"
FLATTENED = f"%flat = tensor.collapse_shape %c [[0, 1]] : {C} into {FLAT}"
CONVOLVED = f"%r = linalg.conv_2d_nhwc_hwcf ins(%x, %w : {X}, {W}) outs(%y : {Y}) -> {Y}"


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
    "before_the_sum": (RETURNED, lambda a, b, c: [c, c + a @ b]),
    "after_the_sum": (function(GIVEN, [SUM], r=C, c=C), lambda a, b, c: [c + a @ b, c]),
    "reshaped": (function(GIVEN, [SUM, FLATTENED], flat=FLAT, r=C),
                 lambda a, b, c: [c.ravel(), c + a @ b]),
    "two_sums": (function(GIVEN, [SUM, SECOND], c=C, r=C, s=C),
                 lambda a, b, c: [c, c + a @ b, c + 2 * (a @ b)]),
    "convolution": (function(f"%x: {X}, %w: {W}, %y: {Y}", [CONVOLVED], y=Y, r=Y),
                    lambda x, w, y: [y, convolved(x, w, y)]),
}  # fmt: skip


@needs_iree
@pytest.mark.full
def test_arguments_that_are_results_too_keep_their_values(tmp_path: Path) -> None:
    text = "".join(one.replace("@main", f"@{name}") for name, (one, _) in CASES.items())
    source, plain, copied = (tmp_path / name for name in ("m.mlir", "m.vmfb", "copied.vmfb"))
    source.write_text(text)
    compile_file(source, plain)
    assert compile_reference(source, copied, compiled_text(text, "preprocessing"), 60.0)
    modules = [LoadedModule(path.read_bytes(), open_device(1)) for path in (plain, copied)]
    for name, (_, numpy) in CASES.items():
        takes, _ = types_of(str(modules[0].declaration(name)))
        random = np.random.default_rng(3)
        arrays = [random_array(kind, random) for kind in takes]
        types = [signature.HAL[kind.element] for kind in takes]
        given = list(zip(arrays, types, strict=True))
        results, overwritten = modules[1].results_and_writes(name, given)
        assert overwritten == (), name
        for found, right in zip(results, numpy(*arrays), strict=True):
            np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-4, err_msg=name)
        assert modules[0].results_and_writes(name, given)[1] == (2,), name


def test_each_element_type_has_a_copy_of_its_own() -> None:
    kinds = ("f32", "4xf32", "2x3xi8", "2x3xi1", "?x3xf32", "5xbf16")
    seen = "".join(
        f'%{i} = hal.tensor.import %arg{i} "x" : !hal.buffer_view -> tensor<{kind}>\n'
        for i, kind in enumerate((*kinds, "4xf32"))
    )
    script = copying_script(seen)
    assert script is not None and script.count("filter_result_type") == len(kinds)
    assert all(f"filter_result_type = tensor<{kind}>" in script for kind in kinds)
    assert "tensor.empty(%copied_size0) : tensor<?x3xf32>" in script
    assert copying_script("no tensor") is None


@needs_iree
@pytest.mark.full
def test_the_forms_that_write_over_a_result_are_named(cli: Cli, untimed, tmp_path: Path) -> None:
    path = written(tmp_path / "returned.mlir", RETURNED)
    made = ("-o", str(tmp_path / "made"))
    done = cli("model", path, *made, "--trials", "1", "--no-ops", "--json")
    assert done.code == 1, done.err
    found = json.loads(done.out)
    forms = found["forms"]
    assert not forms["default"]["right"] and forms["default"]["overwrites"] == [2]
    assert forms["data tiling"]["right"]
    assert all(form["right"] and not form["overwrites"] for name, form in forms.items()
               if name.startswith("library"))  # fmt: skip
    assert forms[found["best"]]["right"]
    last = done.err.strip().splitlines()[-1]
    assert "IREE's compiler writes over argument 2, which is a result too" in last
    assert "data tiling by" not in last.replace("library, data tiling by", "")
    done = cli("plan", path, "--trials", "1", "--layouts", "model", "--run")
    assert done.code == 0, done.err  # a network is not refused for IREE's fault
    assert "IREE is wrong" in done.out
    assert "which is a result too (iree-org/iree#16168)" in done.out
