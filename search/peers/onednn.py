"""oneDNN through PyTorch, in every way that a PyTorch user can reach it on a processor.

PyTorch passes f32 and f64 products to MKL and the rest to oneDNN, which can also be called by name.
All ways are variants and the fastest counts. Operands are views of the problem's buffers; weights
also come in PyTorch's own layout and, if constant, packed by oneDNN.
"""

from collections.abc import Callable, Iterator
from functools import partial, singledispatch

from tilewise.kernels.oracle.operands import Operands
from tilewise.kernels.problem import Conv2d, Matmul, Problem
from tilewise.search.peers.variant import PeerAbsentError, Variant
from tilewise.search.peers.weight_only import (
    Tensor,
    is_plain,
    tensor,
    torch_variant,
    torch_variants,
)

Way = tuple[str, Callable[[], Tensor]]
"""A name, and a function that computes the whole problem and returns where the result is."""
End = Callable[[Tensor], Tensor]
"""Makes the result of sums with their bias."""
Addend = Tensor | None
"""A bias, or what a result is added to, if there is one."""

NARROW = ("bf16", "f16")


def variants(problem: Problem, operands: Operands, threads: int) -> list[Variant]:
    """Return PyTorch's ways to compute a problem; raise PeerAbsentError if there are none."""
    try:
        import torch
    except ModuleNotFoundError as error:
        raise PeerAbsentError("torch is not installed; install tilewise[peers]") from error
    if problem.requant:
        raise PeerAbsentError("PyTorch has no product of bytes that scales its sums to bytes")
    torch.set_num_threads(threads)
    if problem.quantised_weights:
        return torch_variants(problem, operands)
    if problem.zero or problem.b or problem.dtype == "u8":
        raise PeerAbsentError("PyTorch has no product of unsigned bytes or with zero points")
    tensors = {name: tensor(array, problem, name) for name, array in operands.items()}
    return [_variant(problem, name, compute) for name, compute in _ways(problem, tensors)]


def version() -> str:
    """Return a text such as `torch 2.13.0+cpu with oneDNN v3.12.0`."""
    import torch

    lines = torch.__config__.show().splitlines()
    onednn = next((line.split()[-4] for line in lines if "MKL-DNN v" in line), "no oneDNN")
    return f"torch {torch.__version__} with oneDNN {onednn}"


def _variant(problem: Problem, name: str, compute: Callable[[], Tensor]) -> Variant:
    narrow = problem.element.name in NARROW and "f32" not in name
    output = problem.element.name if narrow else None
    if problem.spatial_axes and not problem.has_channels_first:
        return torch_variant(name, compute, output, lambda found: found.permute(0, 2, 3, 1))
    return torch_variant(name, compute, output)


@singledispatch
def _ways(problem: Problem, t: dict[str, Tensor]) -> Iterator[Way]:
    """Yield the ways on tensors; one function per operation."""
    raise PeerAbsentError(f"PyTorch is not used for {problem.op}")


@_ways.register
def _matmul(problem: Matmul, t: dict[str, Tensor]) -> Iterator[Way]:
    import torch

    end = finish(problem, t.get("add"))
    a = t["A"].transpose(-1, -2) if problem.transpose_a else t["A"]
    b = t["B"].transpose(-1, -2) if problem.transpose_b else t["B"]
    c, bias, dtype = t["C"], t.get("bias"), problem.element.name
    if dtype == "i32":
        raise PeerAbsentError("oneDNN has no i32 product")
    if dtype == "i8":
        yield "int_mm", _int_product(problem, a, b, c, bias, end)
        if problem.transpose_a:  # of which it takes some views for others
            yield "int_mm, A copied", _int_product(problem, a, b, c, bias, end, copy=True)
        if problem.has_constant_weights and problem.batch == 1 and is_plain(problem):
            packed = torch.ops.onednn.qlinear_prepack(b.t().contiguous(), list(a.shape))
            yield "qlinear, packed weights", _in_bytes("qlinear", a, 0, packed, problem.n)
        return
    yield "mm" if dtype in NARROW else "mm (MKL)", product(problem, a, b, c, bias, end)
    if dtype == "f16" and not problem.out:
        yield "mm in f32", product(problem, a, b, c, bias, end, widen=True)
    if problem.batch == 1 and (dtype == "bf16" or has_kernels(problem)):
        yield "linear", linear(problem, a, b.t(), c, bias, end)
        if packs_weights(problem):
            packed = torch.ops.mkldnn._reorder_linear_weight(b.t(), problem.m)
            yield "linear, packed weights", linear(problem, a, packed, c, bias, end)


def finish(problem: Problem, added: Addend) -> End:
    """Return what adds to sums and applies the epilogue, in place."""
    import torch

    aten = torch.ops.aten
    ends: dict[str, End] = {
        "relu": torch.relu_,
        "relu6": lambda out: out.clamp_(0, 6),
        "gelu": aten.gelu_.default,
        "gelu_tanh": partial(aten.gelu_.default, approximate="tanh"),
        "silu": aten.silu_.default,
    }
    end = ends.get(problem.epilogue, lambda out: out)
    return end if added is None else lambda out: end(out.add_(added))


def fused_end(problem: Problem) -> tuple[str, list[float], str]:
    """Return oneDNN's post-operation by PyTorch's name, its numbers and its variant."""
    if problem.add:
        return "none", [], ""
    if problem.ceiling is not None:
        return "hardtanh", [0.0, float(problem.ceiling)], ""
    names = {"relu": ("relu", ""), "gelu": ("gelu", "none"), "gelu_tanh": ("gelu", "tanh"),
             "silu": ("swish", "")}  # fmt: skip
    name, variant = names.get(problem.epilogue, ("none", ""))
    return name, [], variant


def product(
    problem: Matmul, a: Tensor, b: Tensor, c: Tensor, bias: Addend, end: End, *, widen: bool = False
) -> Callable[[], Tensor]:
    """Use `addmm` and `baddbmm` into C, or into the type of A where PyTorch writes no other.

    With `widen` in f32, including conversions.
    """
    import torch

    product, added = (torch.mm, torch.addmm) if problem.batch == 1 else (torch.bmm, torch.baddbmm)
    out = c if widen or a.dtype == c.dtype else torch.empty(c.shape, dtype=a.dtype)
    own_bias = None if bias is None else bias.to(out.dtype)
    accumulates = problem.init == "accumulate"

    def compute() -> Tensor:
        left, right = (a.float(), b.float()) if widen else (a, b)
        if accumulates and out is c:
            added(c, left, right, out=c)
            return end(c if own_bias is None else c.add_(own_bias))
        if own_bias is not None:
            added(own_bias, left, right, out=out)
        else:
            product(left, right, out=out)
        return end(c.add_(out) if accumulates else out)

    return compute


def _int_product(
    problem: Matmul, a: Tensor, b: Tensor, c: Tensor, bias: Addend, end: End, *, copy: bool = False
) -> Callable[[], Tensor]:
    """Use `_int_mm` per matrix: int8 into int32."""
    import torch

    accumulates = problem.init == "accumulate"
    out = torch.empty_like(c) if accumulates else c
    shape = (problem.batch, problem.m, problem.n)
    parts = list(
        zip(a.expand(problem.batch, -1, -1), b.expand(problem.batch, -1, -1), out.view(shape),
            strict=True)
    )  # fmt: skip

    def compute() -> Tensor:
        for left, right, into in parts:
            first = left.clone(memory_format=torch.contiguous_format) if copy else left
            torch._int_mm(first, right, out=into)
        if accumulates:
            c.add_(out)
        if bias is not None:
            c.add_(bias)
        return end(c)

    return compute


def packs_weights(problem: Problem) -> bool:
    """Return whether oneDNN packs the weights ahead."""
    return problem.has_constant_weights and has_kernels(problem)


def has_kernels(problem: Problem) -> bool:
    """Return whether oneDNN has kernels of the type for this processor."""
    import torch

    if not torch.backends.mkldnn.is_available():
        return False
    of_type = {"bf16": "_is_mkldnn_bf16_supported", "f16": "_is_mkldnn_fp16_supported"}
    supports = of_type.get(problem.dtype)
    return bool(getattr(torch.ops.mkldnn, supports)()) if supports else problem.dtype == "f32"


def linear(
    problem: Matmul, a: Tensor, weights: Tensor, c: Tensor, bias: Addend, end: End
) -> Callable[[], Tensor]:
    """Use oneDNN's inner product with fused bias and relu, which allocates its result."""
    import torch

    call = torch.ops.mkldnn._linear_pointwise.default
    accumulates = problem.init == "accumulate"
    ends = ("none", list[float](), "") if accumulates else fused_end(problem)
    own_bias = None if bias is None else bias.to(a.dtype)

    def compute() -> Tensor:
        out = call(a, weights, own_bias, *ends)
        out = c.add_(out) if accumulates else out
        return end(out) if accumulates or problem.add else out

    return compute


@_ways.register
def _convolution(problem: Conv2d, t: dict[str, Tensor]) -> Iterator[Way]:
    import torch

    is_first = problem.has_channels_first

    def image_of(name: str) -> Tensor:
        return t[name] if is_first else t[name].permute(0, 3, 1, 2)

    image, filters = image_of("A"), t["B"] if is_first else t["B"].permute(3, 2, 0, 1)
    if not problem.element.is_float:
        if problem.dtype != "i8" or not (problem.has_constant_weights and is_plain(problem)):
            raise PeerAbsentError("PyTorch convolves i8 alone, by constant weights, without ends")
        yield _quantised(problem, image, filters)
        return
    end = finish(problem, image_of("add") if "add" in t else None)
    held = image_of("C") if problem.accumulates else None
    bias = None if "bias" not in t else t["bias"].to(image.dtype)
    convolve = fused if has_kernels(problem) else plain
    for name, weights in _layouts(problem, filters):
        yield f"conv2d, {name}", convolve(problem, image, weights, bias, held, end)
    if problem.dtype == "f16" and not problem.out:
        yield "conv2d in f32", plain(problem, image, filters, t.get("bias"), held, end, widen=True)
    if packs_weights(problem):
        sizes = (*geometry_of(problem), list(image.shape))
        packed = torch.ops.mkldnn._reorder_convolution_weight(filters, *sizes)
        yield "conv2d, packed weights", convolve(problem, image, packed, bias, held, end)


def _quantised(problem: Conv2d, image: Tensor, filters: Tensor) -> Way:
    """Return oneDNN's convolution of bytes: its pixels have no sign, and 128 is their zero."""
    import torch

    pads, strides, dilations, groups = geometry_of(problem)
    pixels, ones = (image.short() + 128).to(torch.uint8), torch.ones(problem.co)
    sizes = (strides, pads, dilations, groups)
    packed = torch.ops.onednn.qconv_prepack(filters, ones, 1.0, 128, *sizes, list(pixels.shape))
    return "qconv2d, packed weights", _in_bytes("qconv2d", pixels, 128, packed, problem.co, *sizes)


def _in_bytes(
    name: str, a: Tensor, zero: int, packed: Tensor, cols: int, *sizes: list[int] | int
) -> Callable[[], Tensor]:
    """Use a product of oneDNN's quantised ops with scales of 1, which writes f32.

    Its sums are whole numbers, exact below 2**24.
    """
    import torch

    scales, zeros = torch.ones(cols), torch.zeros(cols, dtype=torch.int32)
    ends = (1.0, 0, torch.float32, "none", list[float](), "")
    call = getattr(torch.ops.onednn, f"{name}_pointwise")
    return partial(call, a, 1.0, zero, packed, scales, zeros, None, *sizes, *ends)


def _layouts(problem: Conv2d, filters: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield the filter as it is, and in PyTorch's two layouts."""
    import torch

    yield ("oihw weights" if problem.has_channels_first else "hwio weights"), filters
    yield "ohwi weights", filters.contiguous(memory_format=torch.channels_last)
    if not problem.has_channels_first:
        yield "oihw weights", filters.contiguous()


def geometry_of(problem: Conv2d) -> tuple[list[int], list[int], list[int], int]:
    """Return padding, strides, dilations and groups; raise PeerAbsentError for uneven padding."""
    top, left, bottom, right = problem.pads
    if (top, left) != (bottom, right):
        raise PeerAbsentError("oneDNN is not used for padding that differs on opposite sides")
    return [top, left], list(problem.strides), list(problem.dilations), problem.groups


def fused(
    problem: Conv2d, image: Tensor, weights: Tensor, bias: Addend, held: Addend, end: End
) -> Callable[[], Tensor]:
    """Use oneDNN's convolution with fused bias, sum and relu."""
    import torch

    call, geometry = torch.ops.mkldnn._convolution_pointwise.default, geometry_of(problem)
    ends = fused_end(problem)
    if held is None:
        run = partial(call, image, weights, bias, *geometry, *ends)
        return (lambda: end(run())) if problem.add else run
    if held.dtype == image.dtype and ends[0] in ("none", "relu"):
        add, after = torch.ops.mkldnn._convolution_pointwise_, "relu" if problem.has_relu else None
        return partial(add, held, image, weights, bias, *geometry, "add", 1.0, after, [], None)

    def compute() -> Tensor:
        held.add_(call(image, weights, bias, *geometry, "none", [], ""))
        return end(held)

    return compute


def plain(
    problem: Conv2d,
    image: Tensor,
    weights: Tensor,
    bias: Addend,
    held: Addend,
    end: End,
    *,
    widen: bool = False,
) -> Callable[[], Tensor]:
    """Use `F.conv2d`, then sum and relu; with `widen` in f32, including conversions."""
    from torch.nn.functional import conv2d

    padding, stride, dilation, groups = geometry_of(problem)

    def compute() -> Tensor:
        x, w = (image.float(), weights.float()) if widen else (image, weights)
        out = conv2d(x, w, bias, stride, padding, dilation, groups)
        return end(out if held is None else held.add_(out))

    return compute
