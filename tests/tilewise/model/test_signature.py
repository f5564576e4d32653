import numpy as np
import pytest

from tilewise.errors import TilewiseError
from tilewise.model.signature import TensorType, declarations_in, entry_of, random_array, types_of


def test_types_are_read() -> None:
    said = "sync func @main(%input0: tensor<1x8x3xf32>, %input1: tensor<bf16>) -> " \
           "(%output0: tensor<4xi64>)"  # fmt: skip
    assert types_of(said) == (
        [TensorType((1, 8, 3), "f32"), TensorType((), "bf16")],
        [TensorType((4,), "i64")],
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("tensor<?x8xf32>", "static shape"),
        ("i32", "static shape"),
        ("tensor<4xcomplex<f32>>", "complex<f32> is not supported"),
        ("tensor<4x8xi4>", "i4 is not supported"),
    ],
)
def test_what_does_not_run_is_refused(text: str, reason: str) -> None:
    with pytest.raises(TilewiseError, match=reason):
        types_of(f"sync func @main(%input0: {text}) -> (%output0: tensor<4xf32>)")


def test_values_start_on_a_cache_line_and_are_of_their_type() -> None:
    for element, dtype in (("f32", "float32"), ("bf16", "uint16"), ("i64", "int64")):
        made = random_array(TensorType((3, 5), element), np.random.default_rng(0))
        assert made.ctypes.data % 64 == 0 and made.dtype == dtype and made.shape == (3, 5)
        assert len(np.unique(made)) > 1


def test_functions_of_torch_tensors_are_declared_by_what_the_compiler_makes_of_them() -> None:
    found = declarations_in("""
  util.func public @net$async(%arg0: !hal.buffer_view, %arg1: !hal.buffer_view, %arg2: !hal.fence,
      %arg3: !hal.fence) -> (!hal.buffer_view, !hal.buffer_view) attributes {iree.abi.stub} {
    %0 = hal.tensor.import wait(%arg2) => %arg1 : !hal.buffer_view -> tensor<4xi64>
    %1 = hal.tensor.import wait(%arg2) => %arg0 : !hal.buffer_view -> tensor<1x8xf32>
    %2:2 = hal.tensor.barrier join(%1, %0 : tensor<1x8xf32>, tensor<4xi64>) => %arg3 : !hal.fence
    %3 = hal.tensor.export %2#0 : tensor<1x8xf32> -> !hal.buffer_view
    %4 = hal.tensor.export %2#1 : tensor<4xi64> -> !hal.buffer_view
    util.return %4, %3 : !hal.buffer_view, !hal.buffer_view
  }
  util.func public @net(%arg0: !hal.buffer_view, %arg1: !hal.buffer_view) -> !hal.buffer_view {
    util.return %arg0 : !hal.buffer_view
  }
""")
    image, numbers = TensorType((1, 8), "f32"), TensorType((4,), "i64")
    assert list(found) == ["net"]
    assert types_of(found["net"]) == ([image, numbers], [numbers, image])


def test_names_in_quotes_are_names() -> None:
    """PyTorch's exporter calls the graph of an ONNX model so."""
    said = 'iree.reflection = {iree.abi.declaration = "sync func @a b(%input0: i32) -> ()"}'
    module = """
  util.func public @"torch-jit-export$async"(%arg0: VIEW, %arg1: !hal.fence) -> VIEW {
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
    found = declarations_in(module.replace("VIEW", "!hal.buffer_view").replace("SAID", said))
    assert list(found) == ["torch-jit-export", "a b"]
    array = TensorType((3,), "f32")
    assert types_of(found["torch-jit-export"]) == ([array], [array])
    with pytest.raises(TilewiseError, match="i32"):
        types_of(found["a b"])


def test_a_function_without_results_takes_nothing_of_the_next() -> None:
    found = declarations_in("""
  util.func public @quiet$async(%arg0: !hal.buffer_view, %arg1: !hal.fence, %arg2: !hal.fence) {
    util.return
  }
  util.func public @net(%arg0: !hal.buffer_view) -> !hal.buffer_view {
    %0 = hal.tensor.import %arg0 "input0" : !hal.buffer_view -> tensor<3xf32>
    %1 = hal.tensor.export %0 : tensor<3xf32> -> !hal.buffer_view
    util.return %1 : !hal.buffer_view
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
