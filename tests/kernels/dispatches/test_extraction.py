"""Every spelling of a problem is found by known patterns, and by patterns of a module's own ops."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.kernels.dispatches.matching import (
    CONVOLUTION,
    MULTIPLY_ADD,
    RELU,
    TARGET,
    found_in,
    function,
    generic,
    library_of,
    module_of,
    name_of,
    op,
    random_arrays,
    run_with_kernels,
    stand_in,
    tensor,
    zeros,
)
from tilewise.kernels.dispatches.compilation import compiled_with
from tilewise.kernels.dispatches.executable import LibraryEntry, compiled
from tilewise.kernels.dispatches.extraction.extract import cut_module, patterns_of
from tilewise.kernels.dispatches.library import text_of
from tilewise.kernels.errors import CompilerError
from tilewise.kernels.mlir.frontend.read import read_module
from tilewise.kernels.mlir.iree.runtime import ELEMENTS, LoadedModule, open_device
from tilewise.kernels.oracle.operands import Array, empty_aligned
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Pack, Register, Schedule, Tile
from tilewise.kernels.target import Target

pytest.importorskip("iree.runtime", reason="iree-base-runtime is not installed")

SPELLED = Path(__file__).parent / "spelled"
ROUNDED = "%end = arith.truncf %x0 : f32 to bf16"
MATMUL, CONV = "matmul:m=9,n=33,k=19,dtype=", "conv2d:n=1,h=9,w=7,ci=6,co=10,kh=3,kw=3"
GROUPS = "conv2d:n=1,h=9,w=7,ci=8,co=8,kh=3,kw=3,dtype=f32"
LINALG = [
    *(MATMUL + dtype for dtype in ("f32", "f64", "bf16", "f16", "i8", "i32")), MATMUL + "f32,bias",
    MATMUL + "f32,epilogue=relu", MATMUL + "i8,bias,epilogue=relu",
    MATMUL + "f32,transpose_a,transpose_b,bias,epilogue=relu", MATMUL + "f32,init=accumulate,bias",
    MATMUL + "f32,transpose_b,weights=constant,bias",
    "matmul:batch=3,m=9,n=21,k=17,dtype=f32,transpose_b",
    "matmul:batch=3,m=9,n=21,k=17,dtype=bf16,transpose_a,epilogue=relu",
    f"{CONV},pad=1,dtype=f32,bias,epilogue=relu", f"{CONV},pad=1,dtype=bf16",
    f"{CONV},pad=1,dtype=f32,init=accumulate,bias,epilogue=relu",
    f"{CONV},stride=2,dilation=2,dtype=f32,epilogue=relu,weights=constant",
    f"{CONV},pad=2,layout=nchw_fchw,dtype=i8,bias", MATMUL + "bf16,bias,epilogue=relu6",
    MATMUL + "bf16,out=bf16,bias,epilogue=relu", MATMUL + "f16,out=f16",
    MATMUL + "f32,bias,add,epilogue=relu", f"{CONV},dtype=f32,add",
    MATMUL + "bf16,out=bf16,bias,add,epilogue=relu",
    f"{CONV},pad=1,layout=nchw_fchw,dtype=bf16,out=bf16,bias",
    f"{CONV},pad=1,layout=nchw_fchw,dtype=f32,init=accumulate,bias,epilogue=relu6",
    f"{GROUPS},groups=8,pad=1,bias,epilogue=relu6", f"{GROUPS},groups=8,pad=1,bias",
    f"{GROUPS},groups=8,layout=nchw_fchw,epilogue=relu",
    f"{GROUPS},groups=4,pad=1,bias,epilogue=relu", f"{GROUPS},groups=4,stride=2,layout=nchw_fchw",
]  # fmt: skip
SMALL, PHOTO = "matmul:m=64,n=128,k=96,dtype=", "conv2d:n=1,h=14,w=14,ci=64,co="
BOTH = [  # what the modules of two frameworks have between them
    SMALL + "f32,bias,epilogue=relu", SMALL + "f32,transpose_b",
    SMALL + "f32,transpose_b,bias,epilogue=relu", SMALL + "f32,weights=constant", SMALL + "i8",
    SMALL + "bf16", "matmul:batch=12,m=64,n=128,k=96,dtype=f32",
    "matmul:batch=12,m=64,n=128,k=96,dtype=f32,transpose_b",
    PHOTO + "96,kh=3,kw=3,pad=1,dtype=f32,bias,epilogue=relu",
    PHOTO + "96,kh=3,kw=3,pad=1,stride=2,layout=nchw_fchw,dtype=f32",
    PHOTO + "96,kh=3,kw=3,pad=1,layout=nchw_fchw,dtype=f32,bias,epilogue=relu",
    PHOTO + "96,kh=1,kw=1,layout=nchw_fchw,dtype=f32",
    PHOTO + "64,kh=3,kw=3,pad=1,groups=64,dtype=f32",
    PHOTO + "64,kh=3,kw=3,pad=1,groups=64,layout=nchw_fchw,dtype=f32,bias",
    SMALL + "f32,bias,epilogue=relu6", SMALL + "f32,transpose_b,bias,epilogue=relu6",
    PHOTO + "64,kh=3,kw=3,pad=1,groups=64,dtype=f32,bias,epilogue=relu6",
    PHOTO + "64,kh=3,kw=3,pad=1,groups=64,layout=nchw_fchw,dtype=f32,bias,epilogue=relu6",
]  # fmt: skip


def test_named_ops_and_generics_of_linalg() -> None:
    found = found_in(module_of(*LINALG), library_of(*LINALG))
    assert found == {f"f{at}": [name_of(text)] for at, text in enumerate(LINALG)}


def test_a_rounding_behind_joined_bias_and_relu_is_found() -> None:
    a, b, wide = (tensor(*shape, element="bf16") for shape in ((9, 19), (19, 33), (9, 33)))
    sums, bias = tensor(9, 33), tensor(33)
    ended = "%s = arith.addf %x0, %x1 : f32", "%end = arith.maximumf %s, %zero : f32"
    module = function(
        {"a": a, "b": b, "bias": bias},
        wide,
        zeros("z", sums),
        op("p", "matmul", {"%a": a, "%b": b}, "%z", sums),
        generic("e", "m n, n -> m n", {"%p": sums, "%bias": bias}, "%z_e", sums, *ended),
        f"\n  %t = tensor.empty() : {wide}",
        generic("r", "m n -> m n", {"%e": sums}, "%t", wide, ROUNDED),
    )
    problem = MATMUL + "bf16,out=bf16,bias,epilogue=relu"
    assert found_in(module, library_of(problem)) == {"main": [name_of(problem)]}
    without = module.replace("%end = arith.maximumf %s, %zero", "%end = arith.addf %s, %zero")
    assert found_in(without, library_of(problem)) == {}


def test_what_torch_mlir_makes() -> None:
    module = (SPELLED / "torch.mlir").read_text()
    fused = PHOTO + "96,kh=3,kw=3,pad=1,layout=nchw_fchw,dtype=f32,bias,epilogue=relu"
    cut_off = PHOTO + "64,kh=3,kw=3,pad=1,groups=64,layout=nchw_fchw,dtype=f32,bias,epilogue=relu6"
    assert found_in(module, library_of(*BOTH), "iree-input-type=torch") == {
        "linear": [name_of(SMALL + "f32,transpose_b,bias,epilogue=relu")],
        "bmm": [name_of("matmul:batch=12,m=64,n=128,k=96,dtype=f32")],
        "conv": [name_of(fused)],
        "convn": [name_of(PHOTO + "96,kh=1,kw=1,layout=nchw_fchw,dtype=f32")],
        "dw": [name_of(PHOTO + "64,kh=3,kw=3,pad=1,groups=64,layout=nchw_fchw,dtype=f32,bias")],
        "relu6": [name_of(SMALL + "f32,transpose_b,bias,epilogue=relu6")],
        "hardtanh": [name_of(cut_off)],
        "clamp": [name_of(cut_off)],
        "rounded": [name_of(SMALL + "bf16")],
    }


def test_what_stablehlo_becomes() -> None:
    module = (SPELLED / "stablehlo.mlir").read_text()
    assert found_in(module, library_of(*BOTH), "iree-input-type=stablehlo") == {
        "dense": [name_of(SMALL + "f32,bias,epilogue=relu")],
        "bmm": [name_of("matmul:batch=12,m=64,n=128,k=96,dtype=f32,transpose_b")],
        "tb": [name_of(SMALL + "f32,transpose_b")],
        "i8": [name_of(SMALL + "i8")],
        "bf": [name_of(SMALL + "bf16")],
        "conv": [name_of(PHOTO + "96,kh=3,kw=3,pad=1,dtype=f32,bias,epilogue=relu")],
        "nchw": [name_of(PHOTO + "96,kh=3,kw=3,pad=1,stride=2,layout=nchw_fchw,dtype=f32")],
        "dw": [name_of(PHOTO + "64,kh=3,kw=3,pad=1,groups=64,dtype=f32")],
        "clamp": [name_of(SMALL + "f32,bias,epilogue=relu6")],
        "relu6": [name_of(PHOTO + "64,kh=3,kw=3,pad=1,groups=64,dtype=f32,bias,epilogue=relu6")],
        "dense3": [name_of(SMALL + "f32,weights=constant")],
    }


def test_every_known_spelling_is_cut_and_found_again() -> None:
    module = module_of(*LINALG)
    cuts = cut_module(module.encode())
    kernels = [stand_in(cut.problem) for cut in cuts]
    own = patterns_of(cuts)
    found = found_in(module, text_of(kernels, TARGET, (), own))
    assert found == {f"f{at}": [name_of(cut.problem)] for at, cut in enumerate(cuts)}
    assert not [cut.reason for cut in cuts if cut.reason]


@pytest.mark.parametrize("dialect", ["torch", "stablehlo"])
def test_modules_of_frameworks_are_replaced_to_the_last_op(dialect: str) -> None:
    module = (SPELLED / f"{dialect}.mlir").read_text()
    cuts = cut_module(module.encode())
    library = text_of([stand_in(cut.problem) for cut in cuts], TARGET, (), patterns_of(cuts))
    found = found_in(module, library)
    assert sorted(name for names in found.values() for name in names) == sorted(
        name_of(cut.problem) for cut in cuts
    )
    assert len(cuts) >= len(BOTH) // 3 and not [cut.whole for cut in cuts if cut.whole]


def contraction(kind: str, letters: str, shapes: Sequence[tuple[int, ...]], around: str) -> str:
    """A module with a contraction as `numpy.einsum` spells it, from a tensor or from zeros."""
    a, b, c = (tensor(*shape, element=kind) for shape in shapes)
    places = " ".join(letters).replace(" , ", ", ").replace("- >", "->")
    body = (line.replace("f32", kind) for line in MULTIPLY_ADD)
    lines = zeros("z", c), generic("r", places, {"%a": a, "%b": b}, around, c, *body)
    text = function({"a": a, "b": b, "c": c}, c, *lines, name="kernel")
    return text.replace("0.0 : f32", f"0.0 : {kind}")


SIZES = dict(zip("bhijkmnpqdx", (2, 3, 5, 32, 19, 18, 17, 4, 5, 8, 3), strict=True))


def shapes_of(letters: str) -> list[tuple[int, ...]]:
    """The shapes of both inputs and of the result."""
    names = letters.replace("->", ",").split(",")
    return [tuple(SIZES[one] for one in name) for name in names]


@pytest.mark.full
@pytest.mark.parametrize(("letters", "around"), [
    ("hik,kj->ihj", "%c"), ("bqhd,bkhd->bhqk", "%z"),
    ("phxi,qhxj->pqij", "%z"), ("kxm,nxk->nm", "%c"),
])  # fmt: skip
def test_operands_in_another_order_are_transposed(host: Target, letters: str, around: str) -> None:
    shapes = shapes_of(letters)
    module, arrays = contraction("f32", letters, shapes, around), random_arrays(*shapes)
    each = [Tile("batch", 1)] if letters.startswith("bqhd") else []
    schedule = Schedule((*each, Register(1, host.lanes("f32"))))
    (cut,), found = run_with_kernels(module, host, arrays, schedule, "kernel")
    assert cut.pattern is not None and any(cut.pattern.turns)
    expected = np.einsum(letters, *arrays[:2]) + (arrays[2] if around == "%c" else 0)
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(CompilerError, match="does not compile"):
        cut_module(b"func.func @f() { nonsense }")


def padded(source: str, shape: tuple[int, ...], windows: tuple[int, int]) -> str:
    """`%p`: a source with one zero around it."""
    around = [int(axis in windows) for axis in range(len(shape))]
    large = tensor(*(size + 2 * more for size, more in zip(shape, around, strict=True)))
    places = ", ".join(f"%i{axis}: index" for axis in range(len(shape)))
    return f"""
  %p = tensor.pad {source} low{around} high{around} {{
  ^bb0({places}):
    tensor.yield %zero : f32
  }} : {tensor(*shape)} to {large}"""


def convolved(image: Array, filters: Array) -> Array:
    """Of `n h w g c` and `g k r s c`, with a zero around."""
    wide = np.pad(image, [(0, 0), (1, 1), (1, 1), (0, 0), (0, 0)])
    windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), (1, 2))
    return np.einsum("nhwgcrs,gkrsc->nhwgk", windows, filters)


def test_a_padded_image_in_groups_whose_filters_are_one_after_another(host: Target) -> None:
    x, w, y = tensor(1, 9, 9, 2, 4), tensor(2, 16, 3, 3, 4), tensor(1, 9, 9, 2, 16)
    places = "n h+r w+s g c, g k r s c -> n h w g k"
    ins = {"%p": tensor(1, 11, 11, 2, 4), "%w": w}
    lines = padded("%x", (1, 9, 9, 2, 4), (1, 2)), zeros("f", y)
    op_lines = generic("r", places, ins, "%f", y, *MULTIPLY_ADD)
    image, weights = random_arrays((1, 9, 9, 2, 4), (2, 16, 3, 3, 4))
    schedule = Schedule((Tile("g", 1), Pack("A"), Register(1, host.lanes("f32"))))
    module = function({"x": x, "w": w}, y, *lines, op_lines)
    (cut,), found = run_with_kernels(module, host, [image, weights], schedule)
    assert ",pad=1," in cut.problem and "groups=2" in cut.problem
    np.testing.assert_allclose(found, convolved(image, weights), atol=1e-4)


def turned_result(relu: str) -> str:
    """A product with its result transposed, perhaps reshaped, then without what is below zero."""
    x, w, y, flat = tensor(3, 5, 8), tensor(8, 5, 16), tensor(16, 3, 5), tensor(16, 15)
    product = generic("s", "m d k, k d n -> n m d", {"%x": x, "%w": w}, "%f", y, *MULTIPLY_ADD)
    if relu == "reshaped":
        result, lines = flat, [
            f"\n  %flat = tensor.collapse_shape %s [[0], [1, 2]] : {y} into {flat}",
            f"\n  %t = tensor.empty() : {flat}",
            generic("r", "i j -> i j", {"%flat": flat}, "%t", flat, RELU),
        ]  # fmt: skip
    else:
        result, larger, one = y, tensor(16, 3, 5, element="i1"), "i j k"
        compared, chosen = "arith.cmpf ogt, %x0, %zero : f32", "arith.select %x0, %x1, %zero : f32"
        lines = [
            f"\n  %t = tensor.empty() : {larger}",
            generic("l", f"{one} -> {one}", {"%s": y}, "%t", larger, f"%end = {compared}"),
            generic("r", f"{one}, {one} -> {one}", {"%l": larger, "%s": y}, "%f_e", y,
                    f"%end = {chosen}"),
        ]  # fmt: skip
    return function({"x": x, "w": w}, result, zeros("f", y), product, *lines)


@pytest.mark.parametrize("relu", ["reshaped", "of two ops"])
def test_an_op_without_a_pattern_of_all_that_is_around_it_loses_the_least(
    host: Target, relu: str
) -> None:
    """A result in another order is not followed through a reshape, so relu stays IREE's."""
    module = turned_result(relu)
    (whole,) = read_module(module.encode()).occurrences
    arrays = random_arrays((3, 5, 8), (8, 5, 16))
    each = [Tile("batch", 1)] if "batch=" in whole.problem else []
    schedule = Schedule((*each, Register(1, host.lanes("f32"))))
    (cut,), found = run_with_kernels(module, host, arrays, schedule)
    assert "relu" in whole.fused and (cut.whole, cut.where) == (whole.problem, whole.where)
    assert cut.problem == whole.problem.replace(",epilogue=relu", "")
    expected = np.maximum(np.einsum("mdk,kdn->nmd", *arrays), 0).reshape(found.shape)
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_zeros_around_an_image_that_is_transposed_afterwards_are_no_pad(host: Target) -> None:
    """The problem's image would be the one before the transposition, in another order."""
    x, w, y = tensor(1, 8, 9, 9), tensor(3, 3, 8, 16), tensor(1, 9, 9, 16)
    wide, nhwc = tensor(1, 8, 11, 11), tensor(1, 11, 11, 8)
    module = function(
        {"x": x, "w": w}, y, padded("%x", (1, 8, 9, 9), (2, 3)), zeros("f", y),
        f"\n  %te = tensor.empty() : {nhwc}",
        f"\n  %t = linalg.transpose ins(%p : {wide}) outs(%te : {nhwc}) permutation = [0, 2, 3, 1]",
        op("r", CONVOLUTION, {"%t": nhwc, "%w": w}, "%f", y),
    )  # fmt: skip
    image, weights = random_arrays((1, 8, 9, 9), (3, 3, 8, 16))
    schedule = Schedule((Register(1, host.lanes("f32")),))
    _, found = run_with_kernels(module, host, [image, weights], schedule)
    nhwgc = image.transpose(0, 2, 3, 1)[..., np.newaxis, :]
    expected = convolved(nhwgc, weights.transpose(3, 0, 1, 2)[np.newaxis])
    np.testing.assert_allclose(found, expected[..., 0, :], atol=1e-4)


INITS = ("fill", "constant", "broadcast")
ADDED = ("vector", "filled vector", "whole", "scalar", "body", "tensors")


def biased(name: str, spelling: str, element: str, *, relu: bool) -> str:
    """A product with a bias that is the number 3."""
    is_float = element == "f32"
    three, zero = ("3.0", "0.0") if is_float else ("3", "0")
    add, most = ("arith.addf", "arith.maximumf") if is_float else ("arith.addi", "arith.maxsi")
    row, whole = tensor(32, element=element), tensor(6, 32, element=element)
    x, w = tensor(6, 8, element=element), tensor(8, 32, element=element)
    same, vector = "i j, i j -> i j", f"\n  %v = arith.constant dense<{three}> : {row}"
    full = f"\n  %v = arith.constant dense<{three}> : {whole}"
    init = {
        "fill": op("i", "fill", {"%n": element}, "%f_e", whole),
        "constant": full.replace("%v", "%i"),
        "broadcast": f"{vector}\n  %i = linalg.broadcast ins(%v : {row}) outs(%f_e : {whole})"
        " dimensions = [0]",
    }.get(spelling, "")

    def added(places: str, value: str, kind: str) -> str:
        ins = {"%s": whole} | ({value: kind} if "," in places else {})
        summed = f"{add} %x0, {'%x1' if ',' in places else value} : {element}"
        body = [f"%{'t' if relu else 'end'} = {summed}"]
        body += [f"%end = {most} %t, %z : {element}"] if relu else []
        return generic("r", places, ins, "%f_e", whole, *body)

    ended = {
        "vector": vector + added("i j, j -> i j", "%v", row),
        "filled vector": f"\n  %ve = tensor.empty() : {row}"
        + op("v", "fill", {"%n": element}, "%ve", row)
        + added("i j, j -> i j", "%v", row),
        "whole": full + added(same, "%v", whole),
        "scalar": added("i j,  -> i j", "%n", element),
        "body": added("i j -> i j", "%n", element),
        "tensors": f"{full}\n  %r = {add} %s, %v : {whole}",
    }.get(spelling, "")  # fmt: skip
    start = "%i" if init else "%f"
    numbers = f"""
  %n = arith.constant {three} : {element}
  %z = arith.constant {zero} : {element}"""
    filled = zeros("f", whole).replace("%zero", "%z")
    product = op("s" if ended else "r", "matmul", {"%x": x, "%w": w}, start, whole)
    return function({"x": x, "w": w}, whole, numbers, filled, init, product, ended, name=name)


BIASES = [
    *((one, "f32", False) for one in (*INITS, *ADDED)),
    *((one, "f32", True) for one in ("vector", "body")),
    ("body", "i32", False),
]


@pytest.mark.full
def test_a_bias_that_is_a_number_is_fused_however_it_is_spelled(host: Target) -> None:
    module = "".join(biased(f"f{at}", spelling, element, relu=relu)
                     for at, (spelling, element, relu) in enumerate(BIASES))  # fmt: skip
    cuts = cut_module(module.encode())
    assert [cut.reason for cut in cuts] == [""] * len(BIASES)
    schedule = Schedule((Pack("B"), Register(1, host.lanes("f32"))))
    kernels = [compiled(LibraryEntry(parse_problem(one), schedule), host)
               for one in dict.fromkeys(cut.problem for cut in cuts)]  # fmt: skip
    made = compiled_with(module, text_of(kernels, host, (), patterns_of(cuts)))
    assert len(made.kernels) == len(BIASES)
    loaded, random = LoadedModule(made.code, open_device(1)), np.random.default_rng(2)
    for at, (spelling, element, relu) in enumerate(BIASES):
        given = []
        for shape in ((6, 8), (8, 32)):
            given.append(empty_aligned(shape, np.float32 if element == "f32" else np.int32))
            given[-1][...] = random.integers(-4, 5, shape)
        (found,) = loaded.results(f"f{at}", [(one, ELEMENTS[element]) for one in given])
        right = given[0] @ given[1] + 3
        np.testing.assert_array_equal(found, np.maximum(right, 0) if relu else right, spelling)


PROBLEM = "matmul:m=20,n=16,k=8,dtype=f32,bias,weights=constant"
BATCHES = "matmul:batch=4,m=5,n=16,k=8,dtype=f32"


def integers(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32)


def dense(array: np.ndarray) -> str:
    return f"dense<{array.tolist()}> : tensor<{'x'.join(map(str, array.shape))}xf32>"


W, B = integers((16, 8), 1), integers((16,), 2)
LINEAR = f"""
func.func @main(%x: !torch.vtensor<[4,5,8],f32>) -> !torch.vtensor<[4,5,16],f32>
    attributes {{torch.assume_strict_symbolic_shapes}} {{
  %w = torch.vtensor.literal({dense(W)}) : !torch.vtensor<[16,8],f32>
  %b = torch.vtensor.literal({dense(B)}) : !torch.vtensor<[16],f32>
  %r = torch.aten.linear %x, %w, %b : !torch.vtensor<[4,5,8],f32>, !torch.vtensor<[16,8],f32>,
      !torch.vtensor<[16],f32> -> !torch.vtensor<[4,5,16],f32>
  return %r : !torch.vtensor<[4,5,16],f32>
}}
"""


def test_a_linear_layer_of_three_dims_is_one_product() -> None:
    (found,) = read_module(LINEAR.encode()).occurrences
    assert found.problem == PROBLEM
    assert found.fused == ("broadcast_b", "bias")
    assert (found.a.shape, found.b.shape, found.c.shape) == ((20, 8), (8, 16), (20, 16))
    assert found.is_plain


def test_iree_calls_its_kernel(host: Target) -> None:
    x = empty_aligned((4, 5, 8), np.float32)
    x[...] = integers((4, 5, 8), 3)
    (cut,), result = run_with_kernels(LINEAR, host, [x], Schedule((Pack("B"), Register(5, 16))))
    assert cut.problem == PROBLEM
    np.testing.assert_array_equal(result, x @ W.T + B)


@pytest.mark.parametrize("repeated", ["a", "b"])
def test_what_others_read_too_or_moves_more_stays_batches(repeated: str) -> None:
    """A repeated A makes columns of the batches, and the result would have to be transposed."""
    a, b, y = tensor(4, 5, 8), tensor(4, 8, 16), tensor(4, 5, 16)
    small, whole = (tensor(5, 8), a) if repeated == "a" else (tensor(8, 16), b)
    other, ins = (b, {"%s": a, "%y": b}) if repeated == "a" else (a, {"%y": a, "%s": b})
    alone = function(
        {"v": small, "y": other},
        y,
        f"\n  %e = tensor.empty() : {whole}",
        f"\n  %s = linalg.broadcast ins(%v : {small}) outs(%e : {whole}) dimensions = [0]",
        zeros("z", y),
        op("r", "batch_matmul", ins, "%z", y),
    )
    both = alone.replace(f"-> {y} {{", f"-> ({y}, {whole}) {{", 1)
    both = both.replace(f"return %r : {y}", f"return %r, %s : {y}, {whole}")
    assert read_module(both.encode()).occurrences[0].problem == BATCHES
    problem = read_module(alone.encode()).occurrences[0].problem
    assert problem == (BATCHES if repeated == "a" else "matmul:m=20,n=16,k=8,dtype=f32")
