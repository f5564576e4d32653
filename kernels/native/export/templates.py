"""The fixed parts of an exported module: features, linking, the check.

Templates for `str.format`; `tilewise.kernels.native.export.module` puts them together.
"""

from functools import singledispatch

from tilewise.kernels.errors import UnsupportedError
from tilewise.kernels.oracle.operands import operand_limit
from tilewise.kernels.problem import Conv2d, Matmul, Problem

HEAD = '''
PROBLEM = "{problem}"
NEEDS = {needs!r}


def _require_features():
    """End with one message on a processor that lacks what the kernel is written for."""
    here = ll.get_host_cpu_features()
    missing = [name for name in NEEDS if not here.get(name)]
    if missing:
        message = (
            f"{{PROBLEM}}: this kernel is for {target} and needs {{', '.join(missing)}}, "
            f"which this {{ll.get_host_cpu_name()}} lacks; tune the problem on this machine"
        )
        raise SystemExit(message) if __name__ == "__main__" else ImportError(message)


_require_features()
'''

LINK = '''
@intrinsic
def kernel_addresses(_typing):
    """The addresses of NAMES, whose code becomes part of the function that asks."""

    def codegen(context, builder, signature, _args):
        module = ll.parse_assembly(KERNELS)
        module.triple = ll.get_process_triple()
        module.verify()
        context.active_code_library.add_llvm_module(module)
        kind = ir.FunctionType(ir.VoidType(), [])
        functions = [ir.Function(builder.module, kind, name) for name in NAMES]
        addresses = [builder.ptrtoint(function, ir.IntType(64)) for function in functions]
        return context.make_tuple(builder, signature.return_type, addresses)

    return types.UniTuple(types.int64, len(NAMES))(), codegen
'''

_FLOAT_PRODUCT = """
def _product(x, y):
    return x @ y
"""

_WRAPPED_PRODUCT = '''
def _product(x, y):
    """x @ y modulo 2**32, exactly: 16-bit halves, whose sums in float64 stay below 2**53."""
    total = 0
    for k in range(0, x.shape[-1], 1 << 20):
        part, other = x[..., k : k + (1 << 20)], y[..., k : k + (1 << 20), :]
        (low, high), (other_low, other_high) = (
            ((a & 0xFFFF).astype(np.float64), (a >> 16 & 0xFFFF).astype(np.float64))
            for a in (part.astype(np.int64), other.astype(np.int64))
        )
        cross = (low @ other_high + high @ other_low).astype(np.uint64) << np.uint64(16)
        total = total + (low @ other_low).astype(np.uint64) + cross
    return total.astype(np.uint32)
'''

_MATMUL = """
def _contract(a, b):
    return _product({a}, {b})
"""

_CONV2D = """
def _contract(image, weights):
{to_nhwc}    pad, stride, dilation, groups = {pad}, {stride}, {dilation}, {groups}
    image = np.pad(image, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    kh, kw, depth, co = weights.shape
    total = np.zeros(({n}, {oh}, {ow}, co), image.dtype)
    for i in range(kh):
        for j in range(kw):
            y, x = i * dilation, j * dilation
            rows = slice(y, y + {oh} * stride - stride + 1, stride)
            cols = slice(x, x + {ow} * stride - stride + 1, stride)
            for g in range(groups):
                outs = slice(g * co // groups, (g + 1) * co // groups)
                seen = image[:, rows, cols, g * depth : (g + 1) * depth]
                total[..., outs] += _product(seen, weights[i, j, :, outs]).astype(total.dtype)
    return {from_nhwc}
"""

_COMPARE = {
    True: '''
def _error(result, a, b, c, bias):
    """The largest deviation as a share of what rounding allows, and the deviation."""
    a, b = _wide(a), _wide(b)
    expected, size = _contract(a, b), _contract(np.abs(a), np.abs(b))
    for extra in ({bias}, c):
        if extra is not None:
            expected, size = expected + extra, size + np.abs(extra)
{relu}{spread}    error = np.abs(result - expected)
    return float(np.max(error / ({bound!r} * size + 1e-30))), float(np.max(error))
''',
    False: '''
def _error(result, a, b, c, bias):
    """The number of wrong elements; integers have to be exact."""
    expected = _contract(_wide(a), _wide(b)).astype(np.uint32)
    for extra in ({bias}, c):
        if extra is not None:
            expected = expected + extra.view(np.uint32)
    expected = expected.view(np.int32)
{relu}    wrong = int(np.count_nonzero(result != expected))
    return (2.0 if wrong else 0.0), wrong
''',
}

_RANDOM = {
    "float": "(rng.random(shape) * 2 - 1).astype(dtype)",
    "bf16": "((rng.random(shape) * 2 - 1).astype(np.float32).view(np.uint32) >> 16).astype(dtype)",
    "int": "rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype, endpoint=True)",
}
_WIDE = {
    "float": "x.astype(np.float64)",
    "bf16": "(x.astype(np.uint32) << 16).view(np.float32).astype(np.float64)",
    "int": "x.astype(np.int64)",
}

_OPERANDS = """
def _random(rng, shape, dtype):
    return {random}


def _wide(x):
    return {wide}
"""

_MAIN = '''
def main():
    """Check the kernel on random operands against NumPy, and time it."""
    rng = np.random.default_rng(0)
    a, b = _random(rng, A_SHAPE, A_TYPE), _random(rng, B_SHAPE, B_TYPE)
    out, bias = _outputs(rng)
    initial = {initial}
{prepare}    {op}(a, {second}, out, bias)
    share, error = _error(out, a, b, initial, bias)
    if not share <= 1:
        raise SystemExit(f"WRONG: {{PROBLEM}}: off by {{error:.3g}}")
    times = []
    while len(times) < 5 or (sum(times) < 0.5 and len(times) < 1000):
        with SimpleTimer() as timer:
            {op}(a, {second}, out, bias)
        times.append(timer.elapsed)
    took = float(np.median(times))
    print(f"OK {{PROBLEM}}: error {{error:.3g}}, {{FLOPS / took / 1e9:.1f}} GFLOP/s, "
          f"{{took * 1e6:.1f}} us a call")


if __name__ == "__main__":
    main()
'''

_OUTPUTS = """
FLOPS = {flops}


def _outputs(rng):
    out = {out}
    return out, {bias}
"""


_SPREAD = "    size = np.max(size)  # what rounds off the largest element spreads\n"


def _cut_off_text(problem: Problem) -> str:
    """The line that does to the expected result what the epilogue does."""
    if problem.ceiling is not None:
        return f"    expected = np.clip(expected, 0, {problem.ceiling})\n"
    return "    expected = np.maximum(expected, 0)\n" if problem.has_relu else ""


def _of_factors(problem: Problem, random: str) -> str:
    """The random numbers of A and B, which may have to be smaller than others."""
    limit = operand_limit(problem)
    return random if limit == 1 else random.replace("* 2 - 1)", f"* 2 - 1) * {limit}")


def check_text(
    problem: Problem, bound: float, accumulates: bool, is_ahead: bool, spreads: bool = False
) -> str:
    """The oracle of the self-check: NumPy in float64, or exact for integers.

    Args:
        problem: what is computed.
        bound: relative error that is allowed, as a fraction of |A||B|; floats only.
        accumulates: whether the result starts from what it holds.
        is_ahead: whether the weights are packed by a function of their own.
        spreads: whether an element may be as far off as the largest one.
    """
    element = problem.element
    kind = "bf16" if element.name == "bf16" else "float" if element.is_float else "int"
    has_bias = problem.has_bias
    is_nchw = problem.has_channels_first
    outer = {"bf16": "float", "float": "float", "int": "int"}[kind]
    random_like = _RANDOM[outer].replace("shape", "{0}_SHAPE").replace("dtype", "{0}_TYPE")
    parts = [
        _OPERANDS.format(random=_of_factors(problem, _RANDOM[kind]), wide=_WIDE[kind]),
        _OUTPUTS.format(
            flops=problem.flops,
            out=random_like.format("C") if accumulates else "np.empty(C_SHAPE, C_TYPE)",
            bias=random_like.format("BIAS") if has_bias else "None",
        ),
        _FLOAT_PRODUCT if element.is_float else _WRAPPED_PRODUCT,
        _contract_text(problem),
        _COMPARE[element.is_float].format(
            relu=_cut_off_text(problem),
            bound=bound,
            spread=_SPREAD if spreads else "",
            bias="bias[:, None, None]" if has_bias and is_nchw else "bias",
        ),
        _MAIN.format(
            op=problem.op,
            initial="out.copy()" if accumulates else "None",
            prepare="    packed = pack(b)\n" if is_ahead else "",
            second="packed" if is_ahead else "b",
        ),
    ]
    return "\n\n\n".join(part.strip() for part in parts)


@singledispatch
def _contract_text(problem: Problem) -> str:
    """The function `_contract`, which sums products; one function for each operation."""
    raise UnsupportedError(f"op={problem.op} has no self-check; give a matmul or a conv2d", "op")


@_contract_text.register
def _of_matmul(problem: Matmul) -> str:
    swapped = "np.swapaxes({}, -1, -2)"
    return _MATMUL.format(
        a=swapped.format("a") if problem.transpose_a else "a",
        b=swapped.format("b") if problem.transpose_b else "b",
    )


@_contract_text.register
def _of_convolution(problem: Conv2d) -> str:
    is_nhwc = not problem.has_channels_first
    turned = "image, weights = image.transpose(0, 2, 3, 1), weights.transpose(2, 3, 1, 0)"
    return _CONV2D.format(
        to_nhwc="" if is_nhwc else f"    {turned}\n",
        from_nhwc="total" if is_nhwc else "total.transpose(0, 3, 1, 2)",
        pad=problem.pad,
        stride=problem.stride,
        dilation=problem.dilation,
        groups=problem.groups,
        n=problem.n,
        oh=problem.oh,
        ow=problem.ow,
    )
