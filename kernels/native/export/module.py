"""A schedule's kernel as a Python module, for `tilewise kernel`.

The module imports only numba and numpy. It has the macro-kernel with its sizes filled in, the
packing helpers, and the micro-kernel as LLVM IR text, which an intrinsic links in, so the code is
that of the tuned kernel. Run as a program, it checks itself against NumPy in float64, or exactly
for integers.
"""

import math
from functools import singledispatch
from typing import Any

from tilewise.kernels.errors import UnsupportedError
from tilewise.kernels.instructions import Instruction
from tilewise.kernels.native.export.calls import (
    arguments,
    call_text,
    described,
    pack_function,
    public_function,
    template,
    types,
)
from tilewise.kernels.native.export.description import (
    Tuned,
    formula,
    macro_kernel_addresses,
    method,
    operand_names,
)
from tilewise.kernels.native.export.source import definitions, edges_of_parts, macro_kernel_text
from tilewise.kernels.native.jit.ir_text import kernel_text
from tilewise.kernels.native.plan import KernelPlan, plan
from tilewise.kernels.nest import printed
from tilewise.kernels.oracle.accuracy import MOST_TIMES
from tilewise.kernels.oracle.operands import operand_limit
from tilewise.kernels.oracle.reference import (
    CONFIDENCE,
    SMOOTH_UNIT,
    bound_of,
    rounding_of,
    unit_of_slices,
)
from tilewise.kernels.problem import Convolution, Epilogue, Matmul, Problem, parse_problem
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.system.toolchain import identity
from tilewise.kernels.target import resolve
from tilewise.kernels.target.model import Target

_WIDTH_FEATURES = {64: ("avx512f",), 32: ("avx2",)}
_IMPORTS = {
    "from numba import njit, types",
    "from numba.core.cgutils import ir",
    "from numba.core.codegen import ll",
    "from numba.core.compiler_machinery import SimpleTimer",
    "from numba.extending import intrinsic",
}
_IMPLIED = {"from numba import njit", "from numba import types"}
_LOCATE = """@njit
def _locate():
    return kernel_addresses()


ADDRESSES = _locate()"""
_FLOAT_PRODUCT = """def _product(x, y):
    return x @ y"""
_PERMISSION = '''def _may_use_tiles():
    """Ask Linux for tile registers, as every process has to."""
    request = ctypes.CDLL(None).syscall if sys.platform == "linux" else lambda *_: -1
    return request(158, 0x1023, 18) == 0  # arch_prctl, ARCH_REQ_XCOMP_PERM, tile data


'''
_ASKS = """    if not missing and not _may_use_tiles():
        missing = ["permission to use tile registers"]
"""
_SPREAD = "    size = np.max(size)  # what rounds off the largest element spreads\n"
_SIGNED = "(rng.random(shape) * 2 - 1)"
_RANDOM = {
    "float": f"{_SIGNED}.astype(dtype)",
    "bf16": f"({_SIGNED}.astype(np.float32).view(np.uint32) >> 16).astype(dtype)",
    "int": "rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype, endpoint=True)",
}
_WIDE = {
    "float": "x.astype(np.float64)",
    "bf16": "(x.astype(np.uint32) << 16).view(np.float32).astype(np.float64)",
    "int": "x.astype(np.int64)",
}


def export_result(found: dict[str, Any]) -> str:
    """Return the module of a stored result, as `tilewise show --json` prints it.

    Raises TargetError for another machine, KernelsError if this toolchain lacks something.
    """
    problem, schedule = parse_problem(found["problem"]), Schedule.from_json(found["best"]["steps"])
    return export(problem, schedule, resolve(found["target"]), Tuned.of(found))


def export(
    problem: Problem,
    schedule: Schedule,
    target: Target,
    tuned: Tuned | None = None,
    toolchain: str | None = None,
) -> str:
    """Return the source of a module with the kernel of `schedule`, which is reproducible.

    `toolchain` defaults to the present one.

    Raises ScheduleError for an inapplicable schedule, LoweringError for a missing feature.
    """
    planned = plan(problem, schedule, target, shares_code=False)
    kernel = kernel_text(planned.kernel, planned.use)
    needs = needed_features(kernel.text, planned.spec.how.instruction, target)
    imports, helpers = definitions(planned)
    has_tiles = "amx-tile" in needs
    standard = ["import ctypes", "import sys"] if has_tiles else []
    standard += ["import math"] if problem.epilogue == "gelu" else []
    standard += [""] if standard else []
    others = (imports | _IMPORTS) - _IMPLIED
    macro_kernel = [
        _LOCATE if planned.is_ahead else "",
        helpers,
        macro_kernel_text(planned, kernel.functions).strip(),
        pack_function(problem) if planned.is_ahead else "",
    ]
    return template(
        "module",
        docstring=_docstring(problem, schedule, target, planned, needs, tuned),
        imports="\n".join([*standard, "import numpy as np", *sorted(others)]),
        problem=problem,
        needs=repr(needs),
        permission=_PERMISSION if has_tiles else "",
        asks=_ASKS if has_tiles else "",
        target=target.canonical,
        facts=_facts(problem, planned),
        toolchain=toolchain or identity(),
        kernels=kernel.text,
        names="".join(f'    "{name}",\n' for name in kernel.functions.values()),
        macro_kernel="\n\n\n".join(filter(None, macro_kernel)),
        op=problem.op,
        call=public_function(
            problem, is_packed=planned.is_ahead, run=_run(problem, planned)
        ).strip(),
        **_self_check(problem, planned),
    )


def needed_features(text: str, one: Instruction, target: Target) -> tuple[str, ...]:
    """Return the target's features that IR with an instruction requires to run fast."""
    needs = set(_WIDTH_FEATURES.get(target.vector_bytes, ("neon",)))
    needs |= one.features
    if "x half>" in text:
        needs.add("f16c")
    if target.vector_bytes == 64 and ("x i8>" in text or "x i16>" in text):
        needs.add("avx512bw")
    return tuple(sorted(needs & target.features))


def _docstring(
    problem: Problem,
    schedule: Schedule,
    target: Target,
    planned: KernelPlan,
    needs: tuple[str, ...],
    tuned: Tuned | None,
) -> str:
    names, dtypes = operand_names(problem), types(problem)
    operands = [
        f"{names[name]:<8} {dtypes[name]}{list(shape)}"
        for name, shape in problem.operand_shapes.items()
    ]
    sections = {
        "Problem": str(problem),
        "Computes": "\n".join(filter(None, [formula(problem), method(schedule, tuned)])),
        "Operands, contiguous NumPy arrays": "\n".join(operands),
        "Call": f"from MODULE import {problem.op}\n"
        + call_text(problem, is_packed=planned.is_ahead),
        f"Schedule {schedule.hash}, outermost first": str(schedule),
        "Loop nest": "\n".join(printed(planned.nest)),
        "Tuned for": f"{target.canonical}; needs {', '.join(needs) or 'no extension'}"
        + _speed(tuned, target.threads),
    }
    hint = "The first call compiles, for a second or two. Run the file to check and time it."
    return described(problem, sections, hint)


def _speed(tuned: Tuned | None, threads: int) -> str:
    if tuned is None:
        return ""
    where = "on one core" if threads == 1 else f"on {threads} threads"
    return (
        f"\n{tuned.gflops:.1f} GFLOP/s {where}, {tuned.peak_fraction:.1%} of the peak,"
        f"\nmeasured with {tuned.toolchain}"
    )


def _facts(problem: Problem, planned: KernelPlan) -> str:
    """Shapes, types and scratch, as assignments."""
    dtypes, scratch = types(problem), planned.scratch
    lines = [
        f"{name.upper()}_SHAPE, {name.upper()}_TYPE = {shape}, np.dtype({dtypes[name]!r})"
        for name, shape in problem.operand_shapes.items()
    ]
    sizes, names = [scratch["A"].total, scratch["B"].total], "packed A, packed B"
    if planned.is_ahead:
        lines.append(f"PACKED_BYTES = {scratch['B'].total}  # the weights in panels")
        sizes, names = [scratch["A"].total, 0], "packed A"
    if planned.panels.c:
        sizes, names = [*sizes, scratch["C"].total], f"{names}, sums"
    if len(planned.nest.parts) > 1:
        dims = ", ".join(planned.nest.parts[0])
        lines.append(f"BOUNDS = {edges_of_parts(planned)}  # first and end of {dims}")
        lines.append(f"SCRATCH_STEPS = {tuple(scratch[role].step for role in 'ABC')}")
    lines.append(f"SCRATCH_BYTES = {tuple(sizes)}  # {names}")
    return "\n".join(lines)


def _run(problem: Problem, planned: KernelPlan) -> str:
    """Return the lines that run a macro-kernel."""
    given = arguments(problem, is_packed=planned.is_ahead)
    addresses = macro_kernel_addresses(
        planned,
        {operand: f"{name}.ctypes.data" for operand, name in given.items()},
        a_panels="scratch[0][0]",
        b_panels="scratch[1][0]",
        c_sums="scratch[2][0]" if planned.panels.c else "0",
    )
    if len(planned.nest.parts) == 1:
        lines = "".join(f"        {address},\n" for address in vars(addresses).values())
        return f"    macro_kernel(\n{lines}    )"
    given_addresses = list(vars(addresses).values())
    return template(
        "run_on_threads",
        addresses=", ".join(given_addresses),
        operands=len(given_addresses) - len("ABC"),  # scratch is last
    ).rstrip()


def _self_check(problem: Problem, planned: KernelPlan) -> dict[str, str]:
    """Return the values of the template's self-check.

    Floats may deviate by the rounding of such a sum; with a fast algorithm any element may deviate
    as the largest one.
    """
    element = problem.element
    outer = "float" if element.is_float else "int"
    kind = "bf16" if element.name == "bf16" else outer
    of_result = "bf16" if problem.result.name == "bf16" else outer
    random_bias, random_result = (
        _RANDOM[name].replace("shape", "{0}_SHAPE").replace("dtype", "{0}_TYPE")
        for name in (outer, of_result)
    )
    if problem.requant:
        size = int(_spread(problem))
        random_bias = f"rng.integers({-size}, {size}, {{0}}_SHAPE, {{0}}_TYPE)"
    random, limit = _RANDOM[kind], operand_limit(problem)
    has_floats = problem.quantised_weights is not None  # of float64, made of codes
    if limit != 1:
        random = random.replace(_SIGNED, f"({_SIGNED} * {limit})")
    of_error = {"bias": f"bias{_of_channels(problem) * problem.has_bias}", "relu": "", "c": "c"}
    if of_result == "bf16" and (problem.add or problem.accumulates):
        of_error["c"] = _WIDE["bf16"].replace("x.", "c.")
    if problem.ceiling is not None:
        of_error["relu"] = f"    expected = np.clip(expected, 0, {problem.ceiling})\n"
    elif problem.has_relu:
        of_error["relu"] = "    expected = np.maximum(expected, 0)\n"
    if element.is_float:
        spreads = planned.nest.algorithm is not None
        bound = bound_of(problem)
        bound *= MOST_TIMES if spreads else 1.0
        spread = _SPREAD if spreads else ""
        if problem.function.is_smooth:
            of_error["relu"] = _smooth(problem.function, bound)
        product = _FLOAT_PRODUCT
        allowed = f"{bound!r} * size + 1e-30"
        if weights := problem.quantised_weights:
            share = CONFIDENCE * unit_of_slices(problem)
            norms = f"np.linalg.norm(b, axis={int(weights.is_transposed)})"
            allowed += f" + {share} * np.abs(a).max() * {norms}"
        if problem.out:
            unit, least = rounding_of(problem.out)
            allowed = f"(1 + {unit}) * ({allowed}) + {unit} * np.abs(expected) + {least}"
        result = _WIDE["bf16"].replace("x.", "result.") if of_result == "bf16" else "result"
        error = template(
            "error_of_floats", allowed=allowed, result=result, spread=spread, **of_error
        )
    else:
        product = template("product_of_integers")
        if problem.requant:
            of_error["relu"] += _requantised(problem)
        less = {f"less_{x}": f" - ZERO_{x.upper()}" if x in problem.zero else "" for x in "ab"}
        error = template("error_of_integers", **of_error, **less)
    out = random_result.format("C") if problem.accumulates else "np.empty(C_SHAPE, C_TYPE)"
    initial = random_result.format("ADD") if problem.add else "None"
    return {
        "random": random,
        "wide": _WIDE[kind] + " if x.dtype != np.float64 else x" * has_floats,
        "flops": str(problem.flops),
        "random_out": out,
        "random_bias": random_bias.format("BIAS") if problem.has_bias else "None",
        "product": product.strip(),
        "contract": _contract(problem).strip(),
        "error": error.strip(),
        "initial": "out.copy()" if problem.accumulates else initial,
        "given_more": _given_more(problem),
        "scales": "".join(f"\n\n{line}" for line in _constants(problem)),
        "prepare": _prepare(problem, planned),
        "weights": "packed" if planned.is_ahead else "b",
    }


def _prepare(problem: Problem, planned: KernelPlan) -> str:
    """Return lines that pack the weights; of quantised ones `b` is what they stand for."""
    weights = problem.quantised_weights
    if weights is None:
        return "    packed = pack(b)\n" if planned.is_ahead else ""
    scale = _RANDOM["bf16" if weights.scale == "bf16" else "float"]
    wide = _WIDE["bf16" if weights.scale == "bf16" else "float"]
    zeros = f"rng.integers(0, {2**weights.bits - 1}, ZERO_B_SHAPE, ZERO_B_TYPE, endpoint=True)"
    return template(
        "prepare_quantised",
        low=weights.least,
        high=weights.least + 2**weights.bits - 1,
        scale=scale.replace("shape", "SCALE_B_SHAPE").replace("dtype", "SCALE_B_TYPE"),
        zeros=f"    zero_b = {zeros}\n" if weights.zero else "",
        given="codes, scale_b" + ", zero_b" * bool(weights.zero),
        group=weights.group,
        axis=int(weights.is_transposed),
        depth=weights.depth,
        wide=wide.replace("x.", "scale_b."),
        minus=" - of_k(zero_b)" if weights.zero else "",
    )


def _given_more(problem: Problem) -> str:
    """Return the self-check's arguments behind the bias."""
    more = ["initial"] if problem.add else ["*SCALES"] if problem.requant else []
    more += [f"ZERO_{factor.upper()}" for factor in problem.zero]
    return "".join(f", {one}" for one in more)


def _constants(problem: Problem) -> list[str]:
    """Return the assignments of scales and zero points for the self-check."""
    lines = [
        f"ZERO_{factor.upper()} = np.array([{int(_mean(problem, factor)) + 3}], np.int32)"
        for factor in problem.zero
    ]
    if problem.requant:
        (size,), zero = problem.extras["scale_c"], 128 if problem.out == "u8" else 3
        lines.append(
            f"SCALES = (np.linspace(0.5, 1.5, {size}, dtype=np.float32) * np.float32("
            f"{50 / _spread(problem)!r}),\n          np.array([{zero}], np.int32))"
        )
    return lines


def _mean(problem: Problem, factor: str) -> float:
    """Return the mean of a random operand of bytes."""
    return 127.5 if problem.type_of(factor.upper()) == "u8" else -0.5


def _spread(problem: Problem) -> float:
    """Return a bound of most sums of random bytes; a bias of this size saturates few results."""
    means = [3.0 if factor in problem.zero else _mean(problem, factor) for factor in "ab"]
    rms = math.prod(74**2 + mean**2 for mean in means) ** 0.5
    return float(problem.depth**0.5 * rms + problem.depth * abs(math.prod(means)))


def _of_channels(problem: Problem) -> str:
    """Return the index that puts values of channels along those of the result."""
    behind = ", None" * len(problem.spatial_axes)
    return f"[:{behind}]" if problem.has_channels_first else ""


def _requantised(problem: Problem) -> str:
    """Return lines that make bytes of sums."""
    least = 0 if problem.out == "u8" else -128
    return (
        "    expected = np.rint(expected.astype(np.float32) "
        f"* SCALES[0]{_of_channels(problem)})\n"
        f"    expected = np.clip(expected + np.float32(SCALES[1]), {least}, {least + 255})\n"
    )


def _smooth(epilogue: Epilogue, bound: float) -> str:
    """Return lines that apply a smooth epilogue; `bound` is what sizes are multiplied by."""
    formulas = {
        "gelu": "expected * (0.5 + 0.5 * np.vectorize(math.erf)(expected / 2**0.5))",
        "gelu_tanh": "0.5 * expected * (1 + np.tanh((2 / np.pi) ** 0.5\n"
        "        * (expected + 0.044715 * expected**3)))",
        "silu": "0.5 * expected * (1 + np.tanh(expected / 2))",
    }
    return (
        f"    size = {epilogue.slope} * size + {SMOOTH_UNIT / bound!r} * np.abs(expected)\n"
        f"    expected = {formulas[epilogue.name]}\n"
    )


@singledispatch
def _contract(problem: Problem) -> str:
    """Return the function `_contract`, which sums products; one function per operation."""
    raise UnsupportedError(
        f"op={problem.op} has no self-check; give a matmul or a convolution", "op"
    )


@_contract.register
def _of_matmul(problem: Matmul) -> str:
    a, b = (
        f"np.swapaxes({name}, -1, -2)" if is_transposed else name
        for name, is_transposed in (("a", problem.transpose_a), ("b", problem.transpose_b))
    )
    return f"def _contract(a, b):\n    return _product({a}, {b})"


@_contract.register
def _of_convolution(problem: Convolution) -> str:
    is_nhwc = not problem.has_channels_first
    to_nhwc = "image, weights = np.moveaxis(image, 1, -1), np.moveaxis(weights, (0, 1), (-1, -2))"
    return template(
        "convolution",
        to_nhwc="" if is_nhwc else f"    {to_nhwc}\n",
        from_nhwc="total" if is_nhwc else "np.moveaxis(total, -1, 1)",
        pads=repr(tuple(zip(problem.pads.low, problem.pads.high, strict=True))),
        strides=problem.strides,
        dilations=problem.dilations,
        groups=problem.groups,
        n=problem.n,
        outputs=problem.outputs,
    )
