"""Find races between iterations of parallel loops by running them.

Iterations of `scf.forall` and `scf.parallel` may run in any order and at once, but the timed code
runs them sequentially, where even a loop over a reduction gives the right sums. Here each element
of a buffer that such a loop writes has two shadows: the iteration that last wrote it, and those
that read it. Every access reads and updates them by an operation of its own kind, so vectors, masks
and views need no analysis. This finds each race for the given extents; atomic accesses are none.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from iree.compiler import ir

from tilewise.kernels.mlir.lowering.apply import Diagnostics, StageError, run_passes
from tilewise.kernels.mlir.lowering.functions import Signature, compile_function
from tilewise.kernels.mlir.lowering.structure import function_of, walk
from tilewise.kernels.mlir.proof.child.instrument import (
    EQUAL,
    LESS,
    UNEQUAL,
    add_argument,
    any_of,
    compare,
    constant,
    i64,
    load_word,
    made,
    make,
    store_if,
    store_word,
)  # fmt: skip
from tilewise.kernels.oracle.operands import Array

PARALLEL = ("scf.forall", "scf.parallel", "affine.parallel")
_LOOPS = (
    "builtin.module(func.func(iree-codegen-memrefcopy-to-linalg,convert-linalg-to-loops),"
    "lower-affine)"
)
_VIEWS = {
    f"memref.{kind}"
    for kind in ("cast", "collapse_shape", "expand_shape", "subview", "reinterpret_cast",
                 "transpose", "memory_space_cast", "assume_alignment")
}  # fmt: skip
_READS = {"memref.load": 0, "vector.load": 0, "vector.transfer_read": 0, "vector.maskedload": 0,
          "vector.gather": 0, "vector.expandload": 0}  # fmt: skip
_WRITES = {"memref.store": 1, "vector.store": 1, "vector.transfer_write": 1,
           "vector.maskedstore": 0, "vector.scatter": 0, "vector.compressstore": 0}  # fmt: skip
_WRITE_OF = dict(zip(_READS, _WRITES, strict=True))
_READ_OF = dict(zip(_WRITES, _READS, strict=True))
_NO_ACCESS = {"memref.dim", "memref.dealloc", "memref.extract_strided_metadata", "memref.alloc",
              "memref.prefetch", "memref.atomic_rmw", "memref.generic_atomic_rmw", "scf.for",
              "scf.if", "scf.while", "scf.yield", "scf.condition"}  # fmt: skip
FOUND, LAST = 0, 1
"""Words of the last argument: the access that makes a race, and the last number given."""


def has_parallel_loops(module: Any) -> bool:
    """Return whether a module has loops whose iterations may run at once."""
    return any(op.name in PARALLEL for op, _ in walk(module.operation))


def refuse_races(
    module: Any, signature: Signature, diagnostics: Diagnostics, inputs: list[Array]
) -> None:
    """Run the function of a module, which is changed, and check its parallel loops for races.

    Raises:
        StageError: `race`, with the access; `lower` if an access cannot be followed.
    """
    accesses: list[str] = []
    function = compile_function(
        module, signature, diagnostics, lambda one: accesses.extend(_watch(one))
    )
    words = np.zeros(2, np.int64)
    bound = function.bind(inputs, words)
    bound.call()
    if words[FOUND]:
        raise StageError("race", accesses[words[FOUND] - 1])


def _watch(module: Any) -> list[str]:
    """Add shadows and checks to a module on buffers; return a message for each access."""
    run_passes(module, _LOOPS)
    function = function_of(module)
    loops = [op for op, _ in walk(function) if op.name in PARALLEL]
    accesses = [[op for op, _ in walk(loop) if _touches(op)] for loop in loops]
    found: list[str] = []
    with ir.Location.unknown():
        words = add_argument(function, "memref<2xi64>")
        for loop, inside in zip(loops, accesses, strict=True):
            _watch_loop(loop, inside, function, words, found)
    return found


def _touches(operation: Any) -> bool:
    """Return whether an operation reads or writes a buffer."""
    if operation.name in _VIEWS | _NO_ACCESS:
        return False
    return any(isinstance(one.type, ir.MemRefType) for one in operation.operands)


@dataclass
class _Watched:
    """A parallel loop of a function with its last argument, `words`.

    Attributes:
        many: below the number of each iteration; marks elements that several have read.
        number: of an iteration.
        shadows: both shadows of each buffer and view.
    """

    loop: Any
    function: Any
    words: Any
    many: Any
    number: Any
    shadows: dict[Any, tuple[Any, Any]] = field(default_factory=dict)


def _watch_loop(
    loop: Any, accesses: list[Any], function: Any, words: Any, found: list[str]
) -> None:
    roots = {op: _root(op.operands[_place(op)]) for op in accesses}
    shared = {op: root for op, root in roots.items() if not _is_inside(root, loop)}
    written = [root for op, root in shared.items() if op.name in _WRITES]
    with ir.InsertionPoint(loop):
        many = _next(words)
    with ir.InsertionPoint.at_block_begin(loop.regions[0].blocks[0]):
        number = _next(words)
    watched = _Watched(loop, function, words, many, number)
    for op, root in shared.items():
        if root in written:
            what = "writes" if op.name in _WRITES else "reads"
            found.append(
                f"iterations of {loop.name} depend on each other: one {what} an element of "
                f"{root.type} that another {'uses' if op.name in _WRITES else 'writes'}: {op}"
            )
            with ir.InsertionPoint(op):
                _check(watched, op, len(found))


def _next(words: Any) -> Any:
    """Return a new number, above all others."""
    value = make("arith.addi", [load_word(words, LAST), constant(i64(), 1)], i64())
    store_word(value, words, LAST)
    return value


def _place(operation: Any) -> int:
    """Return which operand is the buffer of an access; raise StageError if it is unknown."""
    place = {**_READS, **_WRITES}.get(operation.name)
    if place is None or operation.parent.operation.name == "vector.mask":
        raise StageError(
            "lower",
            f"cannot check which elements an operation of a parallel loop uses: {operation}",
        )
    return place


def _root(value: Any) -> Any:
    """Return the buffer that a value views; raise StageError if it may be one of several."""
    owner = value.owner
    if isinstance(owner, ir.Block):
        around = owner.owner.operation
        if around.name == "func.func":
            return value
        if around.name == "scf.for" and ir.BlockArgument(value).arg_number:
            return _root(around.operands[2 + ir.BlockArgument(value).arg_number])
    elif owner.name in _VIEWS:
        return _root(owner.operands[0])
    elif owner.name in ("memref.alloc", "memref.alloca", "memref.get_global"):
        return value
    elif owner.name == "scf.if":
        number = ir.OpResult(value).result_number
        ends = [list(region.blocks[0].operations)[-1].operation for region in owner.regions]
        roots = [_root(end.operands[number]) for end in ends]
        if all(_is_inside(root, owner) for root in roots):  # inside whatever loop is around it
            return roots[0]
    raise StageError("lower", f"cannot follow a buffer of a parallel loop: {value}")


def _is_inside(root: Any, loop: Any) -> bool:
    owner = root.owner
    if isinstance(owner, ir.Block):
        return False
    while owner is not None and owner.name != "func.func":
        if owner == loop:
            return True
        owner = owner.parent.operation
    return False


def _check(watched: _Watched, operation: Any, access: int) -> None:
    """Compare an access with the shadows, and record it there."""
    written, read = _shadows(watched, operation.operands[_place(operation)])
    is_write = operation.name in _WRITES
    kind = _vector(operation)
    number, many = (_spread(one, kind) for one in (watched.number, watched.many))
    load, store = _accessors(operation, kind, number, watched.number)
    last = load(written)
    is_bad = _is_of_another(last, number, many)
    readers = load(read)
    if is_write:
        flags = is_bad.type
        is_bad = make("arith.ori", [is_bad, _is_of_another(readers, number, many)], flags)
        store(written, number)
    else:
        is_first = compare(LESS, readers, many)
        is_own = compare(EQUAL, readers, number)
        several = make("arith.select", [is_own, number, many], number.type)
        store(read, make("arith.select", [is_first, number, several], number.type))
    store_if(any_of(is_bad), access, watched.words, FOUND)


def _is_of_another(value: Any, number: Any, many: Any) -> Any:
    """Return whether a shadow has another iteration of this run of the loop."""
    is_older = compare(LESS, value, many)
    is_other = compare(UNEQUAL, value, number)
    return make("arith.select", [is_older, constant(is_older.type, 0), is_other], is_other.type)


def _vector(operation: Any) -> Any:
    """Return the vector that an access reads or writes in memory; None for an element."""
    is_read = operation.name in _READS
    name = operation.name
    value = operation.results[0] if is_read else operation.operands[_value_at(operation)]
    if name.startswith("memref."):
        return None
    shape = list(value.type.shape)
    if name == "vector.transfer_read":
        shape = [shape[axis] for axis in _kept(operation)]
    return ir.VectorType.get(shape, i64()) if shape else None


def _value_at(operation: Any) -> int:
    """Return which operand a write stores."""
    return 0 if _WRITES[operation.name] == 1 else len(operation.operands) - 1


def _kept(operation: Any) -> list[int]:
    """Return the axes of a transfer's vector along which it does not read one element again."""
    results = ir.AffineMapAttr(operation.attributes["permutation_map"]).value.results
    return [axis for axis, one in enumerate(results) if not isinstance(one, ir.AffineConstantExpr)]


def _spread(value: Any, kind: Any) -> Any:
    return value if kind is None else make("vector.broadcast", [value], kind)


Load = Callable[[Any], Any]
Store = Callable[[Any, Any], object]


def _accessors(operation: Any, kind: Any, number: Any, padding: Any) -> tuple[Load, Store]:
    """Return functions that read and write a shadow like an access does its buffer."""
    name, place = operation.name, _place(operation)
    operands = list(operation.operands)
    if name in _WRITES:
        del operands[_value_at(operation)]
        place = 0
    elif name in ("vector.maskedload", "vector.gather", "vector.expandload"):
        del operands[-1]  # the lanes that are not read
    elif name == "vector.transfer_read":
        del operands[1 + operands[0].type.rank]  # the padding
    at = operands[1:]
    if kind is None:
        at = at[: operands[place].type.rank]
        return (
            lambda shadow: make("memref.load", [shadow, *at], number.type),
            lambda shadow, value: made("memref.store", [value, shadow, *at]),
        )
    reads = _READ_OF.get(name, name)
    if reads == "vector.transfer_read":
        return _transfers(operation, at, kind, padding)
    is_masked = reads != "vector.load"
    writes = _WRITE_OF[reads]

    def load(shadow: Any) -> Any:
        return make(reads, [shadow, *at, *([number] if is_masked else [])], kind)

    def store(shadow: Any, value: Any) -> object:
        return made(writes, [shadow, *at, value] if is_masked else [value, shadow, *at])

    return load, store


def _transfers(operation: Any, at: list[Any], kind: Any, padding: Any) -> tuple[Load, Store]:
    """Return transfers of a shadow, without axes along which one element is read again.

    `at` are the indices and an optional mask; `padding` is read beyond the buffer.
    """
    kept = list(range(len(kind.shape)))
    if operation.name == "vector.transfer_read":
        kept = _kept(operation)
    old = ir.AffineMapAttr(operation.attributes["permutation_map"]).value
    bounds = [bool(one) for one in ir.ArrayAttr(operation.attributes["in_bounds"])]
    rank = old.n_dims
    places = ir.AffineMap.get(rank, 0, [old.results[axis] for axis in kept])
    attributes = {
        "permutation_map": ir.AffineMapAttr.get(places),
        "in_bounds": ir.ArrayAttr.get([ir.BoolAttr.get(bounds[axis]) for axis in kept]),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1, rank, len(at) - rank]),
    }

    def load(shadow: Any) -> Any:
        sizes = ir.DenseI32ArrayAttr.get([1, rank, 1, len(at) - rank])
        more = {**attributes, "operandSegmentSizes": sizes}
        return make("vector.transfer_read", [shadow, *at[:rank], padding, *at[rank:]], kind, **more)

    def store(shadow: Any, value: Any) -> object:
        return made("vector.transfer_write", [value, shadow, *at], **attributes)

    return load, store


def _shadows(watched: _Watched, value: Any) -> tuple[Any, Any]:
    """Return the shadows of a buffer or of a view of one, made once for each loop."""
    if value not in watched.shadows:
        watched.shadows[value] = _make_shadows(watched, value)
    return watched.shadows[value]


def _make_shadows(watched: _Watched, value: Any) -> tuple[Any, Any]:
    kind, owner = ir.MemRefType(value.type), value.owner
    shadow = ir.MemRefType.get(kind.shape, i64(), kind.layout, kind.memory_space)
    around = owner.owner.operation if isinstance(owner, ir.Block) else None
    if around is not None and around.name != "func.func":
        return _shadows(watched, around.operands[2 + ir.BlockArgument(value).arg_number])
    if around is None and owner.name == "scf.if":
        raise StageError("lower", f"cannot follow a buffer of a parallel loop: {value}")
    if around is not None or owner.name not in _VIEWS:
        with ir.InsertionPoint.at_block_begin(watched.function.regions[0].blocks[0]):
            sizes = ir.DenseI32ArrayAttr.get([0, 0])
            first, second = (
                make("memref.alloc", [], shadow, operandSegmentSizes=sizes) for _ in range(2)
            )
        return first, second
    sources = _shadows(watched, owner.operands[0])
    attributes = {name: owner.attributes[name] for name in owner.attributes}
    with ir.InsertionPoint.after(owner):
        first, second = (
            make(owner.name, [source, *list(owner.operands)[1:]], shadow, **attributes)
            for source in sources
        )
    return first, second
