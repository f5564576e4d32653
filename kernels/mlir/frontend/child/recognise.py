"""Recognise one linalg op with its surroundings as a problem, or say why it is not one."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from tilewise.kernels.errors import ProblemError
from tilewise.kernels.mlir.frontend.child.bodies import (
    MOST_OPS,
    OTHER,
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
    Before,
    Ending,
    befores,
    ending_of,
    following_transpose,
    repeated_bias,
    transposed_source,
    zeros_around,
)
from tilewise.kernels.mlir.frontend.child.operations import CHOSEN
from tilewise.kernels.mlir.frontend.child.values import (
    Axes,
    Number,
    Structured,
    element,
    is_constant,
    long_axes,
    owner,
    rank,
    splat,
)
from tilewise.kernels.mlir.frontend.graph import Arrangement, Occurrence
from tilewise.kernels.mlir.frontend.nest import (
    ContractionNest,
    NestRefusedError,
    OperandLayout,
    convolution_layout,
    is_contraction,
    matmul_layout,
    moves,
)
from tilewise.kernels.problem import DTYPES, SIGNIFICAND_BITS, Conv2d, Matmul, Problem
from tilewise.kernels.problem.spatial import Pads, canonical

INPUTS = 2
LONGEST_FORMULA = 120  # characters of one in a message
PARTS = ("pad", "relu", "addition", "bias", "copies", "rounding")
"""What a problem may include besides its op; `recognised` leaves out what its caller names.

With `init`, what the sums start from is left out, too."""
ELSEWHERE = {
    "linalg.mmt4d": "is packed already",
    "linalg.batch_mmt4d": "is packed already",
    "linalg.winograd_filter_transform": CHOSEN,
    "linalg.winograd_input_transform": CHOSEN,
    "linalg.winograd_output_transform": CHOSEN,
}


@dataclass(frozen=True)
class Seen:
    """A way to see an op: what is included before and after it, and the resulting layout."""

    nest: ContractionNest
    layout: OperandLayout
    taken: tuple[bool, bool, bool]
    ending: Ending
    has_bias: bool
    accumulates: bool
    repeats: tuple[bool, bool] = (False, False)


def recognised(
    op: Structured, where: str, without: Collection[str] = ()
) -> tuple[Occurrence, Ending] | None:
    """Return the problem of an op with the included ending; leave out `PARTS` in `without`.

    Return None if it neither multiplies matrices nor convolves; raise RefusedError if it nearly
    does.
    """
    if (reason := _refusal(op)) is not None:
        raise NestRefusedError(reason)
    is_product = op.name != "linalg.generic" or (reduces(op.op) and multiplies(op.op))
    if len(op.inputs) < INPUTS:
        if is_product and op.name == "linalg.generic":
            raise NestRefusedError("multiplies elements that its body reads by tensor.extract")
        return None
    if not _may_be(op) and not (is_product and op.name == "linalg.generic"):
        if _is_summed_later(op):
            raise NestRefusedError("makes products that another op sums; give both as one op")
        return None
    nest = op.nest()
    if not nest.c.shape:
        raise NestRefusedError("makes a single number")
    if not nest.has_windows and not is_contraction(nest) and not is_product:
        return None
    dtype = _dtype(op) if is_product and len(op.inputs) == INPUTS else ""
    body = body_of(op, knows_tensors=False)
    factors = None
    if not is_multiply_add(body, len(op.inputs)):
        factors = byte_factors(body, op)
        if factors is None or (element(op.inputs[0]), element(op.init)) != ("i8", "i32"):
            raise NestRefusedError(_other_body(op, body))
    types: dict[str, Any] = {"dtype": dtype or _dtype(op)}
    seen = best_way(op, without)
    zero = None
    if factors:
        inputs = (1, 0) if seen.layout.is_swapped else (0, 1)
        first, second = (factors[i] for i in inputs)
        zero = first.zero
        types = byte_types(
            (first.is_unsigned, zero is not None), (second.is_unsigned, second.zero is not None)
        )
    may_pad = "pad" not in without and (zero is None or zero.name == "const")
    fill = zero.value if zero else 0
    return occurrence(op, seen, types, where, fill if may_pad else None), seen.ending


def byte_types(a: tuple[bool, bool], b: tuple[bool, bool]) -> dict[str, Any]:
    """Return the keys of factors of bytes, of which each is unsigned or not, with a zero or not."""
    return {
        "dtype": "u8" if a[0] else "i8",
        "b": "u8" if b[0] else "i8",
        "zero": "".join(name for name, one in (("a", a), ("b", b)) if one[1]),
    }


def best_way(
    op: Structured, without: Collection[str] = (), *, is_swapped: bool | None = None
) -> Seen:
    """Return the way to see an op that moves the fewest elements; raise RefusedError if none is.

    `is_swapped` says whether the second input of a product has to be A; None for either.
    """
    return min(_ways(op, op.nest(), without, is_swapped), key=_rank)


def _rank(seen: Seen) -> tuple[int, int]:
    return seen.layout.moved, -sum(seen.taken) - sum(seen.repeats)


def _refusal(op: Structured) -> str | None:
    """Return why an op of this name is never a problem."""
    if op.name.startswith("linalg.pooling"):
        return "is a pooling, which multiplies nothing"
    return ELSEWHERE.get(op.name)


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
    return bool(first & second - result) or (_is_outer(op) and _uses_result(op))


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


def _uses_result(op: Structured) -> bool:
    return next(iter(op.body.arguments[-1].uses), None) is not None


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


def _ways(
    op: Structured, nest: ContractionNest, without: Collection[str], is_swapped: bool | None
) -> Iterator[Seen]:
    """Yield every way to see an op; raise the first refusal if there is none."""
    before, after = [[Before()]] * INPUTS, None
    if "copies" not in without:
        before = [befores(value, may_repeat=not nest.has_windows) for value in op.inputs[:INPUTS]]
        after = following_transpose(op.result)
    refusal, found = None, False
    for first, second, last in product(before[0], before[1], (False, True) if after else (False,)):
        try:
            seen = ContractionNest(
                nest.extents,
                nest.a if first.axes is None else nest.a.transposed(first.axes),
                nest.b if second.axes is None else nest.b.transposed(second.axes),
                nest.c.transposed(after) if last and after else nest.c,
            )
            taken = first.is_transposed, second.is_transposed, last
            way = _way(op, seen, taken, after, without, is_swapped)
        except NestRefusedError as error:
            refusal = refusal or error
            continue
        if way is not None:
            found = True
            yield replace(way, repeats=(first.is_repeated, second.is_repeated))
    if not found and refusal is not None:
        raise refusal


def _way(
    op: Structured,
    nest: ContractionNest,
    taken: tuple[bool, bool, bool],
    after: tuple[int, ...] | None,
    without: Collection[str],
    is_swapped: bool | None,
) -> Seen | None:
    costs = (0 if is_constant(op.inputs[0]) else 1, 0 if is_constant(op.inputs[1]) else 1, 1)
    if nest.has_windows:
        layout = convolution_layout(nest, costs)
    else:
        layout = matmul_layout(nest, costs, is_swapped=is_swapped)
    columns = tuple(i for i in layout.axes[2] if i in layout.columns and nest.c.shape[i] > 1)
    if taken[2] and after is not None:
        columns = tuple(after[i] for i in columns)
    begun = _begun(op, columns, may_have_bias="bias" not in without)
    if "init" in without:
        begun = Ending(op.result)
    has_groups = layout.sizes.get("groups", 1) != 1
    if has_groups and begun is None:
        raise NestRefusedError("starts from a tensor that is not a bias, in several groups")
    may_add = layout.is_convolution and begun is not None and not has_groups
    rounds = begun is not None and element(op.inputs[0]) in SIGNIFICAND_BITS
    ending = ending_of(
        begun or Ending(op.result),
        columns,
        summed=op if may_add else None,
        transposes=taken[2],
        without=without if rounds else {*without, "rounding"},
    )
    if taken[2] and (ending.axes is None or begun is None):  # what sums start from is not moved
        return None
    accumulates = begun is None or ending.added is not None
    return Seen(nest, layout, taken, ending, ending.has_bias, accumulates)


def _begun(op: Structured, columns: Axes, *, may_have_bias: bool) -> Ending | None:
    """Return a result with the zero or bias that its sums start from; None if a tensor.

    A constant init is a bias if it varies along the columns alone.
    """
    init = op.init
    number = splat(init)
    if number == 0 or (number is not None and may_have_bias):
        return Ending(op.result, has_bias=bool(number), number=number)
    maker = owner(init)
    if maker is not None and maker.name == "tensor.empty":
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
    layout = seen.layout
    inputs = (1, 0) if layout.is_swapped else (0, 1)
    may_pad = layout.is_convolution and fill is not None
    pad = _pad(op, seen, inputs[0], fill or 0) if may_pad else Pads((0, 0, 0, 0))
    sizes = dict(layout.sizes)
    if any(pad):
        height, width = int(sizes["h"]), int(sizes["w"])
        sizes |= {
            "pad": canonical(pad),
            "h": height - pad.top - pad.bottom,
            "w": width - pad.left - pad.right,
        }
    if has_constant_weights is None:
        has_constant_weights = is_constant(op.inputs[inputs[1]])
    problem = _problem(seen, sizes, types, has_constant_weights)
    operands = (seen.nest.a, seen.nest.b)
    stored = problem.operand_shapes
    a, b, c = (
        Arrangement(axes, stored[name], moves(axes, operand.shape))
        for name, axes, operand in zip(
            ("A", "B", "C"),
            layout.axes,
            (operands[inputs[0]], operands[inputs[1]], seen.nest.c),
            strict=True,
        )
    )
    return Occurrence(
        problem.canonical,
        op.name,
        where,
        a,
        b,
        c,
        is_swapped=layout.is_swapped,
        fused=_fused(seen, pad, inputs),
    )


def _pad(op: Structured, seen: Seen, image: int, zero: Number) -> Pads:
    """Return the zeros, or zero points, around the image; its axes must be known before them."""
    operand = (seen.nest.a, seen.nest.b)[image]
    return zeros_around(
        op.inputs[image],
        _spatial(op, seen),
        transposes=seen.taken[image],
        reshapes=not moves(seen.layout.axes[0], operand.shape),
        zero=zero,
    )


def _spatial(op: Structured, seen: Seen) -> tuple[int | None, ...]:
    """Return the windows' axes of the op's own operand, before an included transposition."""
    which = 1 if seen.layout.is_swapped else 0
    order = transposed_source(op.inputs[which]) if seen.taken[which] else None
    return tuple(
        axis if axis is None or order is None else order[axis] for axis in seen.layout.spatial
    )


def _epilogue(ending: Ending) -> str:
    if ending.has_relu:
        return "relu6" if ending.has_ceiling else "relu"
    return ending.smooth or "none"


def _fused(seen: Seen, pad: Pads, inputs: tuple[int, int]) -> tuple[str, ...]:
    flags = {
        "pad": any(pad),
        "broadcast_a": seen.repeats[inputs[0]],
        "broadcast_b": seen.repeats[inputs[1]],
        "transpose_a": seen.taken[inputs[0]],
        "transpose_b": seen.taken[inputs[1]],
        "transpose_c": seen.taken[2],
        "bias": seen.has_bias,
        "addition": seen.ending.added is not None,
        _epilogue(seen.ending): _epilogue(seen.ending) != "none",
        "rounding": bool(seen.ending.rounds_to),
    }
    return tuple(name for name, is_so in flags.items() if is_so)


def _problem(
    seen: Seen,
    sizes: dict[str, int | str | bool],
    types: dict[str, Any],
    has_constant_weights: bool,
) -> Problem:
    ending = seen.ending
    keys: dict[str, Any] = {
        **sizes,
        **types,
        "out": ending.rounds_to,
        "bias": seen.has_bias,
        "epilogue": _epilogue(ending),
        "weights": "constant" if has_constant_weights else "variable",
    }
    if seen.accumulates:
        keys["init"] = "accumulate"
    try:
        return (Conv2d if seen.layout.is_convolution else Matmul)(**keys)
    except ProblemError as error:
        raise NestRefusedError(str(error)) from error
