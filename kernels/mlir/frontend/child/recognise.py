"""Recognise one linalg op with its surroundings as a problem, or say why it is not one."""

from collections.abc import Collection
from dataclasses import dataclass
from itertools import product
from typing import Any

from tilewise.kernels.errors import ProblemError
from tilewise.kernels.mlir.frontend.child.bodies import (
    INPUTS,
    MOST_OPS,
    OTHER,
    ByteFactor,
    Expr,
    body_of,
    byte_factors,
    formula,
    is_multiply_add,
    multiplies,
    reduces,
    sums,
)
from tilewise.kernels.mlir.frontend.child.fusion import (
    NO_PADS,
    Before,
    Ending,
    EndingState,
    befores,
    ending_of,
    following_transpose,
    repeated_bias,
    zeros_around,
)
from tilewise.kernels.mlir.frontend.child.operations import CHOSEN
from tilewise.kernels.mlir.frontend.child.quantised import Codes
from tilewise.kernels.mlir.frontend.child.values import (
    Axes,
    Number,
    Structured,
    element,
    is_constant,
    is_empty,
    is_pool,
    is_used,
    long_axes,
    rank,
    splat,
)
from tilewise.kernels.mlir.frontend.graph import Arrangement, Occurrence
from tilewise.kernels.mlir.frontend.nest import (
    ContractionNest,
    Keys,
    NestRefusedError,
    OperandLayout,
    convolution_layout,
    matmul_layout,
    moves,
)
from tilewise.kernels.problem import DTYPES, SIGNIFICAND_BITS, Conv2d, Matmul, Problem
from tilewise.kernels.problem.spatial import Pads, canonical

LONGEST_FORMULA = 120  # characters of one in a message
LEAST_OF_STRASSEN = {"n": 512, "k": 512}  # with any rows, which may be a range
PARTS = ("pad", "relu", "addition", "bias", "copies", "rounding")
"""What a problem may include besides its op; `recognised` leaves out what its caller names.

With `init`, what the sums start from is left out, too."""


@dataclass(frozen=True)
class Seen:
    """A way to see an op: what is included before and after it, and the resulting layout."""

    nest: ContractionNest
    layout: OperandLayout
    before: tuple[Before, Before]
    ending: Ending
    accumulates: bool


def recognised(
    op: Structured, where: str, without: Collection[str] = ()
) -> tuple[Occurrence, Ending] | None:
    """Return the problem of an op with the included ending; leave out `PARTS` in `without`.

    Return None if it neither multiplies matrices nor convolves; raise RefusedError if it nearly
    does.
    """
    if "mmt4d" in op.name or "winograd" in op.name:
        raise NestRefusedError("is packed already" if "mmt4d" in op.name else CHOSEN)
    if is_pool(op):
        raise NestRefusedError("is a pooling, which multiplies nothing")
    has_products = op.name == "linalg.generic" and reduces(op.op) and multiplies(op.op)
    is_product = has_products or op.name != "linalg.generic"
    if len(op.inputs) < INPUTS:
        if has_products:
            raise NestRefusedError("multiplies elements that its body reads by tensor.extract")
        return None
    if not _may_be(op) and not has_products:
        if _is_summed_later(op):
            raise NestRefusedError("makes products that another op sums; give both as one op")
        return None
    nest = op.nest()
    if not nest.c.shape:
        raise NestRefusedError("makes a single number")
    dtype = _dtype(op) if is_product and len(op.inputs) == INPUTS else ""
    body = body_of(op, knows_tensors=False)
    factors = None
    if not is_multiply_add(body, len(op.inputs)):
        factors = byte_factors(body, op)
        if factors is None or (element(op.inputs[0]), element(op.init)) != ("i8", "i32"):
            raise NestRefusedError(_other_body(op, body))
    types: dict[str, Any] = {"dtype": dtype or _dtype(op)}
    zero = factors[0 if nest.a.has_windows else 1].zero if factors else None
    seen = best_way(op, {*without, "pad"} if zero else without)  # zeros are no zero points
    if factors:
        types = byte_types(*(factors[i] for i in seen.layout.inputs))
    may_pad = "pad" not in without and (zero is None or zero.name == "const")
    fill = zero.value if zero else 0
    return occurrence(op, seen, types, where, fill if may_pad else None), seen.ending


def byte_types(a: ByteFactor | Codes, b: ByteFactor | Codes) -> dict[str, Any]:
    """Return the keys of factors of bytes."""
    return {
        "dtype": "u8" if a.is_unsigned else "i8",
        "b": "u8" if b.is_unsigned else "i8",
        "zero": "".join(name for name, one in (("a", a), ("b", b)) if one.zero is not None),
    }


def best_way(
    op: Structured, without: Collection[str] = (), *, is_swapped: bool | None = None
) -> Seen:
    """Return the way to see an op that moves the fewest elements; raise RefusedError if none is.

    `is_swapped` says whether the second input of a product has to be A; None for either.
    """
    nest, before, after = op.nest(), [[Before()]] * INPUTS, None
    if "copies" not in without:
        before = [befores(value, may_repeat=not nest.has_windows) for value in op.inputs[:INPUTS]]
        after = following_transpose(op.result)
    refusal, found = None, list[Seen]()
    for first, second, order in product(before[0], before[1], (None, after) if after else (None,)):
        try:
            way = _way(op, nest, (first, second), order, without, is_swapped)
        except NestRefusedError as error:
            refusal = refusal or error
        else:
            found += [way] if way else []
    if not found and refusal is not None:
        raise refusal
    return min(found, key=_rank)


def _rank(seen: Seen) -> tuple[int, int]:
    copies = (*(one.axes for one in seen.before), seen.ending.axes)
    return seen.layout.moved, copies.count(None)


def _may_be(op: Structured) -> bool:
    """Return whether a reduction loop runs over two inputs, or windows are read.

    An outer product has no such loop, but reads its result.
    """
    if op.name != "linalg.generic":
        return any(word in op.name for word in ("matmul", "matvec", "vecmat", "conv", "contract",
                                                "dot"))  # fmt: skip
    if op.dims is None or not rank(op.inputs[0]):
        return False
    first, second, result = op.dims
    return bool(first & second - result) or (_is_outer(op) and is_used(op.body.arguments[-1]))


def _is_outer(op: Structured) -> bool:
    """Return whether each of two inputs has a loop of its own, and the result has all loops."""
    if op.dims is None:
        return False
    first, second, result = op.dims
    return bool(first - second) and bool(second - first) and first | second == result


def _is_summed_later(op: Structured) -> bool:
    """Return whether an op makes all products of a matmul, which another op sums."""
    if op.name != "linalg.generic" or not multiplies(op.op) or not _is_outer(op):
        return False
    readers = [use.owner for use in op.result.uses]
    return any(reduces(reader) and sums(reader) for reader in readers)


def _other_body(op: Structured, body: Expr) -> str:
    count = len(op.inputs)
    has = f"has {count} inputs, and " if count > INPUTS else ""
    if body == OTHER:
        return f"{has}has a body with regions or more than {MOST_OPS} operations"
    found = formula(body, count)
    if len(found) > LONGEST_FORMULA:
        found = f"{found[:LONGEST_FORMULA]}..."
    return f"{has}computes {found}; known is out + in1 * in2 of signed integers or floats"


def _dtype(op: Structured) -> str:
    a, b, c = element(op.inputs[0]), element(op.inputs[1]), element(op.init)
    if a != b:
        raise NestRefusedError(f"multiplies {a} by {b}; both have to be of one type")
    if a not in DTYPES:
        raise NestRefusedError(f"multiplies {a}; known are {', '.join(DTYPES)}")
    if DTYPES[a].accumulator != c:
        raise NestRefusedError(f"adds products of {a} up in {c}; known is {DTYPES[a].accumulator}")
    return a


def _way(
    op: Structured,
    nest: ContractionNest,
    before: tuple[Before, Before],
    order: tuple[int, ...] | None,
    without: Collection[str],
    is_swapped: bool | None,
) -> Seen | None:
    """Return the way with these copies; None if one of them is not included.

    That is the copy of the result, `order`, or one before zeros that stay outside.
    """
    a, b = (one.transposed(copy.axes) for one, copy in zip((nest.a, nest.b), before, strict=True))
    nest = ContractionNest(nest.extents, a, b, nest.c.transposed(order))
    costs = (0 if is_constant(op.inputs[0]) else 1, 0 if is_constant(op.inputs[1]) else 1, 1)
    if nest.has_windows:
        layout = convolution_layout(nest, costs)
    else:
        layout = matmul_layout(nest, costs, is_swapped=is_swapped)
    columns = tuple(i for i in layout.axes[2] if i in layout.columns and nest.c.shape[i] > 1)
    if order is not None:
        columns = tuple(order[i] for i in columns)
    begun = _begun(op, columns, may_have_bias="bias" not in without)
    if "init" in without:
        begun = Ending(op.result)
    has_groups = layout.sizes.get("groups", 1) != 1
    if has_groups and begun is None:
        raise NestRefusedError("starts from a tensor that is not a bias, in several groups")
    rounds = begun is not None and element(op.inputs[0]) in SIGNIFICAND_BITS
    summed = op if layout.is_convolution else None
    without = {*without, *(() if rounds else ("rounding",))}
    if begun is None or has_groups or (summed is None and not _pays_to_add(op, nest, layout)):
        without.add("addition")
    begins = EndingState(begun or Ending(op.result), columns, summed, order is not None, without)
    ending = ending_of(begins)
    if order is not None and (ending.axes is None or begun is None):
        return None  # what sums start from is not moved
    starts = begun is None or (layout.is_convolution and ending.added is not None)
    seen = Seen(nest, layout, before, ending, starts)
    image, filters = (before[number] for number in layout.inputs)
    has_pad = image.is_padded and "pad" not in without and any(_pad(op, seen, 0))
    return None if filters.is_padded or image.is_padded != has_pad else seen


def _pays_to_add(op: Structured, nest: ContractionNest, layout: OperandLayout) -> bool:
    """Return whether a product may add a tensor that no pass of its own has to transpose.

    Kernels by Strassen's algorithm add none; `tilewise.search.space.algorithms` says which products
    are offered it, with few rows those of constants. Those of 16 bits are so fast that reading the
    tensor costs more than the pass of the norm that follows: BERT in bf16 was 5% slower by it.
    """
    is_large = is_constant(op.inputs[layout.inputs[1]]) and all(
        int(layout.sizes[dim]) >= least for dim, least in LEAST_OF_STRASSEN.items()
    )
    kind = element(op.inputs[0])
    pays = kind not in SIGNIFICAND_BITS and not (is_large and kind in ("f32", "f64"))
    return pays and not moves(layout.axes[2], nest.c.shape)


def _begun(op: Structured, columns: Axes, *, may_have_bias: bool) -> Ending | None:
    """Return a result with the zero or bias that its sums start from; None if a tensor.

    A constant init is a bias if it varies along the columns alone.
    """
    init = op.init
    number = splat(init)
    if number == 0 or (number is not None and may_have_bias):
        return Ending(op.result, has_bias=bool(number), number=number)
    if is_empty(init):
        raise NestRefusedError("accumulates onto an uninitialised tensor")
    is_broadcast = set(columns) < {i for i, size in enumerate(init.type.shape) if size > 1}
    found = repeated_bias(init, long_axes(init), columns)
    if not may_have_bias or found is None or not (is_broadcast or is_constant(init)):
        return None
    return Ending(op.result, has_bias=True, bias=found[0], repeated=found[1])


def occurrence(
    op: Structured,
    seen: Seen,
    types: dict[str, Any],
    where: str,
    fill: Number | None = 0,
    *,
    has_constant_weights: bool | None = None,
) -> Occurrence:
    """Return an op as a problem with these keys of types.

    `fill` is what its padding is filled with, None for padding that stays outside;
    `has_constant_weights` whether B is a constant, None to look at it.
    """
    layout, (first, second) = seen.layout, seen.layout.inputs
    may_pad = layout.is_convolution and fill is not None
    pad = _pad(op, seen, fill or 0) if may_pad else NO_PADS
    sizes = dict(layout.sizes)
    if any(pad):
        height, width = int(sizes["h"]), int(sizes["w"])
        sizes |= {
            "pad": canonical(pad),
            "h": height - pad.top - pad.bottom,
            "w": width - pad.left - pad.right,
        }
    if has_constant_weights is None:
        has_constant_weights = is_constant(op.inputs[second])
    problem = _problem(seen, sizes, types, has_constant_weights)
    operands = ((seen.nest.a, seen.nest.b)[first], (seen.nest.a, seen.nest.b)[second], seen.nest.c)
    a, b, c = (
        Arrangement(axes, problem.operand_shapes[name], moves(axes, operand.shape))
        for name, axes, operand in zip("ABC", layout.axes, operands, strict=True)
    )
    return Occurrence(
        problem.canonical, op.name, where, a, b, c, layout.is_swapped, _fused(seen, pad)
    )


def _pad(op: Structured, seen: Seen, zero: Number) -> Pads:
    """Return the zeros, or zero points, around the image; its axes must be known before them."""
    image, spatial = seen.layout.inputs[0], seen.layout.spatial
    order = seen.before[image].axes
    if order is not None:
        spatial = tuple(axis if axis is None else order[axis] for axis in spatial)
    return zeros_around(
        op.inputs[image],
        spatial,
        transposes=order is not None,
        reshapes=not moves(seen.layout.axes[0], (seen.nest.a, seen.nest.b)[image].shape),
        zero=zero,
    )


def _fused(seen: Seen, pad: Pads) -> tuple[str, ...]:
    ending, (a, b) = seen.ending, seen.layout.inputs
    flags = {
        "pad": any(pad),
        "broadcast_a": seen.before[a].is_repeated,
        "broadcast_b": seen.before[b].is_repeated,
        "transpose_a": seen.before[a].is_transposed,
        "transpose_b": seen.before[b].is_transposed,
        "transpose_c": ending.axes is not None,
        "bias": ending.has_bias,
        "addition": ending.added is not None,
        ending.epilogue: ending.epilogue != "none",
        "rounding": bool(ending.rounds_to),
    }
    return tuple(name for name, is_so in flags.items() if is_so)


def _problem(seen: Seen, sizes: Keys, types: dict[str, Any], has_constant_weights: bool) -> Problem:
    ending = seen.ending
    keys: dict[str, Any] = {
        **sizes,
        **types,
        "out": ending.rounds_to,
        "bias": ending.has_bias,
        "add": ending.added is not None and not seen.accumulates,
        "epilogue": ending.epilogue,
        "weights": "constant" if has_constant_weights else "variable",
    }
    if seen.accumulates:
        keys["init"] = "accumulate"
    try:
        return (Conv2d if seen.layout.is_convolution else Matmul)(**keys)
    except ProblemError as error:
        raise NestRefusedError(str(error)) from error
