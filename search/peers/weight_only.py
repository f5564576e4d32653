"""Products with quantised weights: PyTorch's kernels, and ONNX Runtime's MatMulNBits.

Each takes what it was written for: PyTorch groups of 32 to 256 of 4 bits, or 8 bits with a scale
for each column, whose scales it holds in A's type; ONNX Runtime A in f32, rounded to i8 with blocks
of scales where the problem allows that. Weights are brought to their layout ahead.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tilewise.kernels.oracle.operands import Array, Operands, operand_type, widened
from tilewise.kernels.problem import Matmul, Problem
from tilewise.kernels.problem.weights import QuantisedWeights
from tilewise.search.peers.variant import PeerAbsentError, Variant

Tensor = Any  # torch's own types are there only where torch is

TORCH_GROUPS = (32, 64, 128, 256)
_OPSET, _IR_VERSION = 21, 10
SPIN_US = "500"  # of ONNX Runtime's idle threads; by itself 20 ms, into the next contender's sample
_AS_I8, _AS_F32 = 4, 1
"""Values of MatMulNBits' attribute `accuracy_level`: how A may be rounded."""


def torch_variants(problem: Problem, operands: Operands) -> list[Variant]:
    """Return PyTorch's way; raise PeerAbsentError where it has none. It sets no threads."""
    import torch

    weights = problem.quantised_weights
    assert isinstance(problem, Matmul) and weights is not None
    _check_plain(problem)
    codes, scales, zeros = _columns_first(problem, weights, operands)
    a = tensor(operands["A"], problem, "A")
    output = "bf16" if a.dtype == torch.bfloat16 else None
    own = torch.from_numpy(scales.astype(np.float32)).to(a.dtype)
    if weights.bits == 8:
        if weights.groups > 1 or weights.zero:
            raise PeerAbsentError("PyTorch's 8 bits have a scale for each column, no zero points")
        b = torch.from_numpy(codes.astype(np.int8))

        def in_bytes() -> Tensor:
            return torch._weight_int8pack_mm(a, b, own[:, 0].contiguous())

        return [torch_variant("packed weights", in_bytes, output)]
    if weights.group not in TORCH_GROUPS or problem.k % weights.group or problem.n % 16:
        raise PeerAbsentError("PyTorch's 4 bits have whole groups of 32, 64, 128 or 256")
    unsigned = torch.from_numpy((codes - weights.least).astype(np.int32))
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(unsigned, 1)
    shifts = torch.from_numpy(((8 - zeros) * scales).astype(np.float32)).to(a.dtype)
    both = torch.stack([own.t(), shifts.t()], dim=2).contiguous()
    multiply = torch.ops.aten._weight_int4pack_mm_for_cpu
    compute = partial(multiply, a, packed, weights.group, both)
    return [torch_variant("packed weights", compute, output)]


def tensor(array: Array, problem: Problem, name: str) -> Tensor:
    """Return a tensor over the array's memory; NumPy holds bf16, and may hold f16, as uint16."""
    import torch

    if array.dtype == np.uint16:
        is_bf16 = operand_type(problem, name) == "bf16"
        dtype = torch.bfloat16 if is_bf16 else torch.float16
        return torch.from_numpy(array.view(np.int16)).view(dtype)
    return torch.from_numpy(array)


def torch_variant(
    name: str,
    compute: Callable[[], Tensor],
    output: str | None,
    as_c: Callable[[Tensor], Tensor] = lambda found: found,
) -> Variant:
    """Return a way of PyTorch's; `as_c` gives a result the axes of C."""
    import torch

    last: list[Tensor] = []

    def run(repeat: int) -> None:
        with torch.inference_mode():
            for _ in range(repeat):
                found = compute()
        last[:] = [found]

    def result() -> Array:
        found = as_c(last[0])
        wide = found.float() if found.dtype in (torch.bfloat16, torch.float16) else found
        array: Array = wide.numpy()
        return array

    return Variant("onednn", name, run, result, output)


def onnxruntime_variants(problem: Problem, operands: Operands, threads: int) -> list[Variant]:
    """Return ONNX Runtime's MatMulNBits; raise PeerAbsentError where it has no way."""
    weights = problem.quantised_weights
    if weights is None:
        raise PeerAbsentError("ONNX Runtime runs quantised weights alone")
    if problem.dtype != "f32":
        raise PeerAbsentError("ONNX Runtime multiplies quantised weights with f32 on a processor")
    _check_plain(problem)
    assert isinstance(problem, Matmul)
    if weights.group & (weights.group - 1) or not 16 <= weights.group <= 256:
        raise PeerAbsentError("MatMulNBits has groups of a power of two from 16 to 256")
    try:
        import onnxruntime
    except ModuleNotFoundError as error:
        raise PeerAbsentError("onnxruntime is not installed; install tilewise[peers]") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.spin_duration_us", SPIN_US)
    options.log_severity_level = 3
    level = _AS_I8 if weights.quantises_a else _AS_F32
    model = _model(problem, weights, operands, level)
    session = onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"])
    binding = session.io_binding()
    binding.bind_cpu_input("A", operands["A"])
    binding.bind_output("C", "cpu")

    def run(repeat: int) -> None:
        for _ in range(repeat):
            session.run_with_iobinding(binding)

    def result() -> Array:
        (found,) = binding.copy_outputs_to_cpu()
        return np.asarray(found)

    return [Variant("onnxruntime", f"accuracy level {level}", run, result)]


def onnxruntime_version() -> str:
    """Return a text such as `onnxruntime 1.32.0`."""
    import onnxruntime

    return f"onnxruntime {onnxruntime.__version__}"


def is_plain(problem: Problem) -> bool:
    """Return whether a problem is a product alone, without bias, sum or epilogue."""
    has_end = problem.has_bias or problem.add or problem.epilogue != "none"
    return not (has_end or problem.accumulates)


def _check_plain(problem: Problem) -> None:
    if not is_plain(problem):
        raise PeerAbsentError("kernels of quantised weights are compared without epilogues")


def _columns_first(
    problem: Problem, weights: QuantisedWeights, operands: Operands
) -> tuple[Array, Array, Array]:
    """Return codes, scales and zero points with columns first, in float64; zeros if there are none.

    Zero points are those of codes without a sign.
    """
    names = ("B", "scale_b", "zero_b")[: 3 if weights.zero else 2]
    found = [widened(operands[name], problem.type_of(name)) for name in names]
    if not weights.is_transposed:
        found = [array.T for array in found]
    zeros = found[2] if weights.zero else np.full(found[1].shape, float(-weights.least))
    return np.ascontiguousarray(found[0]), np.ascontiguousarray(found[1]), zeros


def _model(problem: Matmul, weights: QuantisedWeights, operands: Operands, level: int) -> bytes:
    """Return an ONNX model of one MatMulNBits."""
    try:
        import onnx
        from onnx import helper, numpy_helper
    except ModuleNotFoundError as error:
        raise PeerAbsentError("onnx is not installed; install tilewise[onnx]") from error
    codes, scales, zeros = _columns_first(problem, weights, operands)
    blocks, size = weights.groups, weights.group
    padded = np.zeros((problem.n, blocks * size), np.uint8)
    padded[:, : problem.k] = codes - weights.least
    packed = _nibbles(padded) if weights.bits == 4 else padded
    packed = packed.reshape(problem.n, blocks, size * weights.bits // 8)
    zero_codes = zeros.astype(np.uint8)
    if weights.bits == 4:
        zero_codes = _nibbles(np.pad(zero_codes, [(0, 0), (0, blocks % 2)]))
    arrays = {
        "B": packed,
        "scales": scales.astype(np.float32).reshape(problem.n, blocks),
        "zeros": zero_codes,
    }
    node = helper.make_node(
        "MatMulNBits", ["A", *arrays], ["C"], domain="com.microsoft",
        K=problem.k, N=problem.n, bits=weights.bits, block_size=size, accuracy_level=level,
    )  # fmt: skip
    kinds = {
        name: helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in (("A", [problem.m, problem.k]), ("C", [problem.m, problem.n]))
    }
    constants = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = helper.make_graph([node], "weights", [kinds["A"]], [kinds["C"]], constants)
    opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)
    return bytes(model.SerializeToString())


def _nibbles(values: Array) -> Array:
    """Return pairs of values along the last axis as bytes, the first one in the lower half."""
    return np.ascontiguousarray(values[..., ::2] | values[..., 1::2] << 4)
