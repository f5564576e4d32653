"""Calls of kernels, or of JAX's own ops where no kernel is stored or none is faster."""

import ctypes
import os
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tilewise.errors import BadInputError
from tilewise.kernels.oracle.operands import empty_aligned
from tilewise.kernels.problem import Conv2d, Matmul, Problem, parse_problem
from tilewise.linked.kernels import Kernel, Source, line_of, warn_once
from tilewise.linked.libraries import compiled
from tilewise.linked.verdicts import Verdict, cold_copies, compare, stored_verdict

Array = Any
_TARGET = "tilewise_call"
_OPTIONS = ("store", "server", "trials", "threads")
_TYPES = {"f32": jnp.float32, "f64": jnp.float64, "bf16": jnp.bfloat16, "f16": jnp.float16}
_NAMES = {jnp.dtype(kind): name for name, kind in _TYPES.items()}
_GELU = {"gelu": partial(jax.nn.gelu, approximate=False), "gelu_tanh": jax.nn.gelu}
_WALL = 2
"""More than one thread computes: those of JAX, not the caller's."""


@cache
def _handler() -> ctypes.CDLL:
    """Return the loaded handler, compiled if this is the first use with this jaxlib."""
    source = Path(__file__).with_name("handler.cpp")
    path = compiled(source, jax.lib.__version__, [f"-I{jax.ffi.include_dir()}"])
    code = ctypes.CDLL(str(path))
    jax.ffi.register_ffi_target(_TARGET, jax.ffi.pycapsule(code.tilewise_call), platform="cpu")
    return code


@dataclass(frozen=True, eq=False)
class Call:
    """A problem of arrays of JAX, computed by a kernel or by JAX's own op.

    Attributes:
        kernel: None where JAX's own op is used.
        reason: why it is.
    """

    problem: Problem
    kernel: Kernel | None = None
    reason: str = ""
    _prepared: dict[int, Array] = field(default_factory=dict, repr=False)

    def prepare(self, weights: Array) -> Array:
        """Return constant weights as the kernel reads them, to be passed in their place.

        Weights of a JAX array are packed once as long as it exists.
        """
        if self.kernel is None or not self.kernel.packed_bytes or self._is_packed(weights):
            return weights
        known = self._prepared.get(id(weights))
        if known is not None:
            return known
        wanted = _struct(self.problem, "B")
        given = np.ascontiguousarray(weights, wanted.dtype)
        if given.shape != wanted.shape:
            raise BadInputError(f"{self.problem}: weights are {given.shape}, not {wanted.shape}")
        packed = empty_aligned((self.kernel.packed_bytes,), np.uint8)
        pointers = [ctypes.c_void_p(one.ctypes.data) for one in (given, packed)]
        if code := _handler().tilewise_prepare(self.kernel.name.encode(), *pointers):
            raise BadInputError(f"{self.problem}: weights cannot be packed, code {code}")
        with jax.ensure_compile_time_eval():
            known = jnp.asarray(packed)
        if isinstance(weights, jax.Array):
            self._prepared[id(weights)] = known
            weakref.finalize(weights, self._prepared.pop, id(weights), None)
        return known

    def __call__(
        self, a: Array, b: Array, bias: Array | None = None, add: Array | None = None
    ) -> Array:
        """Return the result; `add` is a residual, or what the result of `init=accumulate` holds.

        Raises:
            BadInputError: an operand is missing or has another shape or type than the problem's.
        """
        named = {"A": a, "B": b, "bias": bias, "add": add}
        operands = {name: jnp.asarray(one) for name, one in named.items() if one is not None}
        wanted = {name: _struct(self.problem, name) for name in _names(self.problem)}
        if "bias" in wanted and bias is not None:
            operands["bias"] = operands["bias"].astype(wanted["bias"].dtype)
        if is_packed := self._is_packed(operands["B"]):
            wanted["B"] = operands["B"]
        given, needed = (
            ", ".join(f"{name} {one.dtype}{list(one.shape)}" for name, one in side.items())
            for side in (operands, wanted)
        )
        if given != needed:
            raise BadInputError(f"{self.problem}: operands are {given} instead of {needed}")
        values = list(operands.values())
        is_unknown = self.problem.has_constant_weights and isinstance(b, jax.core.Tracer)
        if self.kernel is not None and is_unknown and not is_packed:
            warn_once(f"{self.problem}: weights are traced, so JAX computes; pass prepare(b)")
        if self.kernel is None or (is_unknown and not is_packed):
            return _own(self.problem, *values)
        return _kernel(self, [values[0], self.prepare(b), *values[2:]], values)

    def _is_packed(self, weights: Array) -> bool:
        size = self.kernel.packed_bytes if self.kernel else 0
        return bool(size and weights.dtype == jnp.uint8 and weights.shape == (size,))


def _names(problem: Problem) -> tuple[str, ...]:
    """Return the operands in the order of calls."""
    return ("A", "B", *problem.extras, *(("add",) if problem.accumulates else ()))


def _struct(problem: Problem, operand: str) -> jax.ShapeDtypeStruct:
    shape = problem.operand_shapes["C" if operand == "add" else operand]
    return jax.ShapeDtypeStruct(shape, _TYPES[problem.type_of(operand)])


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _kernel(call: Call, given: Sequence[Array], _operands: Sequence[Array]) -> Array:
    """Call a kernel with operands as it reads them; derivatives are of the operands themselves."""
    assert call.kernel is not None
    target = jax.ffi.ffi_call(
        _TARGET,
        _struct(call.problem, "C"),
        vmap_method="sequential",
        input_output_aliases={len(given) - 1: 0} if call.problem.accumulates else None,
    )
    sizes = np.array(call.kernel.sizes_of(vars(call.problem)), np.int64)
    return target(*given, symbol=call.kernel.name, sizes=sizes)


def _derivatives(call: Call, primals: Any, tangents: Any) -> Any:
    if call._is_packed(primals[1][1]):
        raise BadInputError(f"{call.problem}: gradients need weights themselves, not prepared ones")
    return jax.jvp(partial(_own, call.problem), primals[1], tangents[1])


_kernel.defjvp(_derivatives)


def _own(problem: Problem, a: Array, b: Array, *more: Array) -> Array:
    """Return the result by JAX's own ops."""
    kind = _struct(problem, "C").dtype
    if isinstance(problem, Conv2d):
        pads = problem.pads
        out = lax.conv_general_dilated(
            a, b, problem.strides, [(pads.top, pads.bottom), (pads.left, pads.right)],
            rhs_dilation=problem.dilations, feature_group_count=problem.groups,
            dimension_numbers=("NHWC", "HWIO", "NHWC"), preferred_element_type=kind,
        )  # fmt: skip
    else:
        a, b = a.mT if problem.transpose_a else a, b.mT if problem.transpose_b else b
        out = jnp.matmul(a, b, preferred_element_type=kind)
    for one in more:
        out = out + one
    if problem.epilogue != "none":
        out = (_GELU.get(problem.epilogue) or getattr(jax.nn, problem.epilogue))(out)
    return out.astype(kind)


def load(problem: str | Problem, **options: Any) -> Call:
    """Return the call of a problem, with its stored kernel if that is faster than JAX's own op.

    Args:
        problem: a matmul, or a conv2d in nhwc, of floats.
        options: `store` or `server`, a URL, by default as `TILEWISE_DB` and `TILEWISE_SERVER` say;
            `trials` of a search if no kernel is stored (0: no search); `threads` of the kernel,
            by default one for each processor.

    Raises:
        BadInputError: the problem is of another kind, JAX has no f64, or there is no such option.
    """
    if unknown := ", ".join(options.keys() - _OPTIONS):
        known = ", ".join(_OPTIONS)
        raise BadInputError(f"options: {unknown} is not one of {known}; load takes a whole problem")
    wanted = parse_problem(problem) if isinstance(problem, str) else problem
    is_known = isinstance(wanted, Matmul | Conv2d) and wanted.dtype in _TYPES
    if not is_known or wanted.quantised_weights or wanted.has_channels_first:
        raise BadInputError(f"{wanted}: not a matmul or a conv2d in nhwc of one type of floats")
    if wanted.dtype == "f64" and not jax.config.jax_enable_x64:
        raise BadInputError(f"{wanted}: jax_enable_x64 is off; set it by jax.config.update")
    return _load(wanted, Source(**{"threads": len(os.sched_getaffinity(0)), **options}))


@cache
def _load(problem: Problem, source: Source) -> Call:
    if jax.default_backend() != "cpu":
        return Call(problem, reason=f"the default backend is {jax.default_backend()}")
    try:
        choices = [[problem.canonical]]
        framework = f"jax={jax.__version__},threads={len(os.sched_getaffinity(0))}"
        with source.open(_handler, choices) as kernels, jax.ensure_compile_time_eval():
            kernel = kernels.load(problem.canonical)
            found = stored_verdict(kernel, framework, _measure) if kernel else None
    except Exception as error:  # a store, a service or a compiler may fail in any way
        warn_once(f"{problem}: no kernel is used: {line_of(error)}")
        return Call(problem, reason=str(error))
    if found is None:
        return Call(problem, reason="no kernel is stored")
    if found.wins:
        return Call(problem, kernel)
    return Call(problem, reason="JAX is faster" if found.is_right else "its result differs")


def _measure(kernel: Kernel, problem: Problem) -> Verdict:
    random = np.random.default_rng(0)

    def operand(name: str) -> Array:
        struct = _struct(problem, name)
        return jnp.asarray(random.standard_normal(struct.shape), struct.dtype)

    call, (a, b, *more) = Call(problem, kernel), map(operand, _names(problem))
    weights = [b, *(operand("B") for _ in range(1, cold_copies(problem)))]
    packed = [call.prepare(one) for one in weights]
    ours = jax.jit(lambda *given: _kernel(call, given, given))
    runs = [partial(_wait, ours, a, one, *more) for one in packed]
    own = jax.jit(partial(_own, problem))
    others = [partial(_wait, own, a, one, *more) for one in weights]
    got, expected = (np.asarray(side[0](), np.float64) for side in (runs, others))
    error = float(np.linalg.norm(got - expected)) / max(float(np.linalg.norm(expected)), 1e-30)
    return compare(problem, error, runs, others, _WALL)


def _wait(function: Callable[..., Array], *operands: Array) -> Array:
    return jax.block_until_ready(function(*operands))


def matmul(
    a: Array, b: Array, bias: Array | None = None, *, epilogue: str = "none", **options: Any
) -> Array:
    """Return `epilogue(a @ b + bias)` with `b` of two or three dims; options are those of `load`.

    Weights that are not traced, such as those that a jitted function closes over, are constants.
    """
    weights = "variable" if b.ndim > 2 or isinstance(b, jax.core.Tracer) else "constant"
    if b.ndim == 3 == a.ndim and len(b) == 1:  # one product, of which no operand has a batch
        b = b[0]
    rows = a.reshape(-1, a.shape[-1]) if b.ndim == 2 else a
    dtype = _NAMES.get(jnp.dtype(a.dtype), str(a.dtype))
    (k, n), batch = b.shape[-2:], 1 if b.ndim == 2 else len(b)
    keys: dict[str, Any] = {"dtype": dtype, "bias": bias is not None, "weights": weights}
    keys |= {"out": dtype if dtype in ("bf16", "f16") else "", "epilogue": epilogue}
    problem = Matmul(batch=batch, m=rows.shape[-2], n=n, k=k, **keys)
    return load(problem, **options)(rows, b, bias).reshape(*a.shape[:-1], b.shape[-1])
