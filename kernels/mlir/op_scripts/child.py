"""The process in which a user's op is scripted, compiled and run: `python -m
tilewise.kernels.mlir.op_scripts.child`.

It may die at any moment, as `tilewise.kernels.mlir.proof.child.prove` may.
"""

from typing import Any

import numpy as np

from tilewise.kernels.mlir.frontend.graph import Arrangement, Occurrence
from tilewise.kernels.mlir.proof.child.stages import (
    Finding,
    Passing,
    establish,
    run_and_time,
    serve,
)
from tilewise.kernels.mlir.proof.proof import ProofReply
from tilewise.kernels.oracle.operands import Array, empty_aligned
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.system.typed_json import from_json

Shape = tuple[int, ...]


def passing_of(found: Occurrence, shapes: tuple[Shape, Shape, Shape]) -> Passing:
    """Return the transforms from a problem's operands to an op's, and from its result to C."""
    inputs = ("B", "A") if found.is_swapped else ("A", "B")
    names = (*inputs, "C")
    of_name = dict(zip(names, shapes, strict=True))

    def argument(name: str, array: Array) -> Array:
        return _as_the_op_has_it(array, found.arrangements[name], of_name[name])

    def result(array: Array) -> Array:
        return np.ascontiguousarray(array.transpose(found.c.axes)).reshape(found.c.shape)

    return Passing(lambda _problem: names, argument, result)


def _as_the_op_has_it(array: Array, how: Arrangement, shape: Shape) -> Array:
    """The value of which `value.transpose(axes).reshape(...)` is an array, in memory of its own."""
    ordered = array.reshape([shape[axis] for axis in how.axes])
    value = empty_aligned(shape, array.dtype.type)
    value[...] = ordered.transpose(np.argsort(how.axes))
    return value


def prove_here(request: dict[str, Any]) -> ProofReply:
    """Prove the script of an op in this process: what could be established."""
    found = from_json(Occurrence, request["found"])
    problem = parse_problem(found.problem)
    a, b, c = (tuple(shape) for shape in request["shapes"])

    def steps(finding: Finding, diagnostics: Any) -> None:
        from tilewise.kernels.mlir.lowering.apply import apply_to
        from tilewise.kernels.mlir.lowering.structure import check_structure
        from tilewise.kernels.mlir.lowering.to_llvm import lower

        module = finding.apply(lambda: apply_to(request["payload"], request["script"], diagnostics))
        vectorised = check_structure(module, request["columns"], request["lanes"])
        finding.note(vectorised=vectorised)
        compiled, scratch = finding.compile(lambda: lower(module, diagnostics))
        passing = passing_of(found, (a, b, c))
        finding.note(**run_and_time(problem, compiled, scratch, request, passing))

    return establish(steps)


if __name__ == "__main__":
    serve(prove_here)
