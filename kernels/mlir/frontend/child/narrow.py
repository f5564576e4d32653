"""Problems of narrow integers behind ops that dequantise or widen the factors of a product.

    sum (scale_a (a - zero_a)) (scale_b (b - zero_b))    of bytes, scaled afterwards
    sum a (scale_b (b - zero_b))                         of weights of few bits in groups

The first is exact in integers where scales do not vary along the reduction. Biases, functions and
requantisation behind scaled sums are computed in floats, and stay outside of the problem.
"""

from tilewise.kernels.mlir.frontend.child.bodies import INPUTS, Expr, body_of, is_multiply_add
from tilewise.kernels.mlir.frontend.child.fusion import unpadded
from tilewise.kernels.mlir.frontend.child.quantised import (
    Codes,
    codes_of,
    keys_of_weights,
    scale_varies,
)
from tilewise.kernels.mlir.frontend.child.recognise import Seen, best_way, byte_types, occurrence
from tilewise.kernels.mlir.frontend.child.values import (
    Structured,
    element,
    is_constant,
    only_user,
    structured,
)
from tilewise.kernels.mlir.frontend.graph import Occurrence
from tilewise.kernels.mlir.frontend.nest import NestRefusedError, dims_of
from tilewise.kernels.problem import parse_problem

AFTER = ("relu", "addition", "bias", "rounding", "init")
"""What is outside of a product whose sums are scaled afterwards."""
ACTIVATIONS = ("f32", "bf16")
_BYTES = (-128, 0)
_MOST_PRODUCT = 255 * 255
_SUMS = {"i32": (), "i64": AFTER, "f32": AFTER}


def narrow(op: Structured, where: str) -> Occurrence | None:
    """Return the problem of bytes or of quantised weights that an op is; None for any other op.

    Raise RefusedError if it multiplies bytes in a way that no problem expresses.
    """
    if len(op.inputs) != INPUTS or not is_multiply_add(body_of(op, knows_tensors=False), INPUTS):
        return None
    codes, refusal = [codes_of(unpadded(value)[0]) for value in op.inputs], None
    for form in (_of_bytes, _of_weights):
        try:
            found = form(op, codes, where)
        except NestRefusedError as error:
            refusal = refusal or error
            continue
        if found is not None:
            return found
    if refusal is not None:
        raise refusal
    return None


def _of_bytes(op: Structured, codes: list[Codes | None], where: str) -> Occurrence | None:
    """Return a product of bytes, exact in integers; None if it is none."""
    first, second = codes
    if first is None or second is None or element(op.init) not in _SUMS:
        return None
    for which, one in (("first", first), ("second", second)):
        if reason := _why_no_byte(one):
            raise NestRefusedError(f"multiplies bytes, and the {which} input {reason}")
    is_scaled = first.scale is not None or second.scale is not None
    if is_scaled != (element(op.init) == "f32"):
        return None
    if is_scaled and {element(one) for one in op.inputs} != {"f32"}:  # which rounds each factor
        return None
    seen = best_way(op, _SUMS[element(op.init)])
    if any(scale_varies(one, _axes(seen, i)) for i, one in enumerate((first, second))):
        return None
    a, b = ((first, second)[i] for i in seen.layout.inputs)
    constant = is_constant(b.source.value)
    found = occurrence(op, seen, byte_types(a, b), where, has_constant_weights=constant)
    if element(op.init) == "i64" and not _is_exact(op, found):
        raise NestRefusedError("adds products of bytes up in i64 beyond what i32 holds")
    return found


def _is_exact(op: Structured, found: Occurrence) -> bool:
    """Return whether sums of 64 bits fit in 32, or only their lower 32 bits are read."""
    if parse_problem(found.problem).depth * _MOST_PRODUCT < 1 << 31:
        return True
    user = only_user(op.result)
    seen = None if user is None else structured(user)
    return seen is not None and body_of(seen) == Expr("arith.trunci", (Expr("arg"),))


def _why_no_byte(codes: Codes) -> str:
    """Return why codes are not all values of a byte, less one zero point of it; empty if so."""
    zero, least = codes.zero, codes.least
    if least not in _BYTES or codes.most - least != (1 << 8) - 1:
        return "has other limits"
    if isinstance(zero, Codes):
        if not zero.source.is_one:
            return "has several zero points"
        zero = zero.least if (zero.least, zero.most) == (least, codes.most) else codes.most + 1
    return "" if zero is None or least <= zero <= codes.most else "has a zero point beyond a byte"


def _of_weights(op: Structured, codes: list[Codes | None], where: str) -> Occurrence | None:
    """Return a product with quantised weights; None if it is none."""
    for number, weights in enumerate(codes):
        dtype = element(op.inputs[1 - number])
        if weights is None or dtype not in ACTIVATIONS or element(op.init) != "f32":
            continue
        if op.nest().has_windows:
            continue
        seen = best_way(op, (), is_swapped=number == 0)
        keys = keys_of_weights(weights, _axes(seen, number))
        if keys is not None:
            types = {"dtype": dtype, **keys}
            return occurrence(op, seen, types, where, has_constant_weights=True)
    return None


def _axes(seen: Seen, number: int) -> tuple[int, ...]:
    """Return the axes of an input along the reduction, in problem order."""
    operand, order = (seen.nest.a, seen.nest.b)[number], seen.before[number].axes
    kept = dims_of(seen.nest.c.axes)
    axes = seen.layout.axes[seen.layout.inputs[number]]
    axes = tuple(axis for axis in axes if not dims_of([operand.axes[axis]]) <= kept)
    return axes if order is None else tuple(order[axis] for axis in axes)
