"""In the child: any script on any payload, with the payload's own result as the reference."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from iree.compiler import ir

from tilewise.kernels.mlir.lowering.apply import Diagnostics, StageError, apply_script, apply_to
from tilewise.kernels.mlir.lowering.functions import (
    Function,
    OutputArray,
    compile_function,
    signature_of,
)
from tilewise.kernels.mlir.lowering.linalg_ops import put_parallel_innermost
from tilewise.kernels.mlir.lowering.structure import is_vectorised, outline
from tilewise.kernels.mlir.proof.child.comparison import (
    ORDER_IS_FREE,
    ComparisonRules,
    LargestDifference,
    difference,
    moves_further,
)
from tilewise.kernels.mlir.proof.child.inputs import KINDS, kinds_of, make_inputs, make_spiked
from tilewise.kernels.mlir.proof.child.instrument import perturb, seeds
from tilewise.kernels.mlir.proof.child.races import has_parallel_loops, refuse_races
from tilewise.kernels.mlir.proof.child.timing import time_in_turn
from tilewise.kernels.mlir.proof.child.traits import (
    NON_FINITE,
    Traits,
    traits_of,
    watch_conversions,
)
from tilewise.kernels.oracle.operands import Array
from tilewise.kernels.system.limited_child import stage

PERTURBED_RUNS = 4


@dataclass(frozen=True)
class WorstDifference:
    """The worst difference over all results (`name` is its result) of some kinds of inputs."""

    inputs: str
    name: str
    difference: LargestDifference

    def fields(self) -> dict[str, Any]:
        """Return the fields of an outcome that it establishes."""
        found = self.difference
        is_finite = np.isfinite(found.error)
        out: dict[str, Any] = {
            "max_error": found.error if is_finite else None,
            "tolerance": found.allowed,
            "inputs": self.inputs,
        }
        if found.is_wrong:
            off = f"off by {found.error:g}, {found.allowed:g} is allowed: " if is_finite else ""
            message = (
                f"{self.name} is {off}{found.found} at {list(found.place)}, and the payload's own "
                f"is {found.expected} ({self.inputs} inputs)"
            )
            out |= {"failure": "wrong", "message": message}
        return out


@dataclass(frozen=True)
class Functions:
    """The functions that run on the same inputs.

    Attributes:
        reference: the payload.
        perturbed: the payload with an error in each rounding, seeded by its last argument.
        own: the perturbed script; None if the payload's roundings allow enough.
    """

    scripted: Function
    reference: Function
    perturbed: Function
    own: Function | None = None


def apply_request(request: dict[str, Any], diagnostics: Diagnostics) -> Any:
    """Return the module that a request's script transforms, or raise StageError."""
    if request["payload"] is None:
        return apply_script(request["script"], diagnostics)
    return apply_to(request["payload"], request["script"], diagnostics, True)


def examine(module: Any) -> dict[str, Any]:
    """Return the facts of a transformed module before it is run."""
    return {
        "outline": outline(module),
        "vectorised": is_vectorised(module),
        "transformed": str(module),
    }


def check_races(request: dict[str, Any], module: Any, diagnostics: Diagnostics) -> None:
    """Raise StageError `race` if iterations of parallel loops depend on each other."""
    if not has_parallel_loops(module):
        return
    stage("races")
    signature = signature_of(payload_alone(_payload_of(request)))
    inputs = make_inputs(next(iter(KINDS)), signature.arguments, request["seed"])
    refuse_races(ir.Module.parse(str(module)), signature, diagnostics, inputs)


def _payload_of(request: dict[str, Any]) -> str:
    text: str = request["script"] if request["payload"] is None else request["payload"]
    return text


def run_payload(
    request: dict[str, Any], module: Any, diagnostics: Diagnostics, *, is_timed: bool = True
) -> dict[str, Any]:
    """Compile the module and its payload, run both on the same inputs, compare and time them.

    Raise StageError if either cannot be lowered, or no inputs can be made.
    """
    text = _payload_of(request)
    signature, transformed = signature_of(payload_alone(text)), str(module)
    if not (signature.arguments or signature.results):
        raise StageError("lower", f"@{signature.name} takes and returns nothing to compare")

    def compiled(module: Any, *changes: Callable[[Any], None]) -> Function:
        return compile_function(module, signature, diagnostics, *changes)

    begin = time.perf_counter()
    scripted = compiled(module)
    out: dict[str, Any] = {"compile_s": time.perf_counter() - begin}
    found: list[Traits] = []
    reference = compiled(
        payload_alone(text), put_parallel_innermost, lambda one: found.append(traits_of(one))
    )
    (traits,) = found
    perturbed = compiled(payload_alone(text), put_parallel_innermost, perturb)
    stage("run")
    functions = Functions(scripted, reference, perturbed)
    kinds = kinds_of(signature.arguments, traits)
    inputs = {kind: make_inputs(kind, signature.arguments, request["seed"]) for kind in kinds}
    if traits.makes_integers:
        watching = compiled(payload_alone(text), watch_conversions)
        kinds = [kinds[0], *(kind for kind in kinds[1:] if is_defined(watching, inputs[kind]))]

    def compared(functions: Functions, may_spread: bool = False) -> WorstDifference:
        found = [
            compare_runs(kind, inputs[kind], functions, traits.rules(kind, may_spread))
            for kind in kinds
        ]
        return max(found, key=lambda one: one.difference.share)

    worst = compared(functions)
    if worst.difference.is_inexact or (worst.difference.is_wrong and worst.inputs in NON_FINITE):
        stage("own roundings")
        own = compiled(ir.Module.parse(transformed), partial(perturb, element=traits.widest))
        functions = replace(functions, own=own)
        spiked = make_spiked(signature.arguments, request["seed"])
        worst = compared(functions, any(is_mixed(functions, one) for one in spiked))
    out |= {"executed": True, **worst.fields()}
    if worst.difference.is_wrong or not is_timed:
        return out
    plain = compiled(payload_alone(text))
    stage("time")
    calls = [function.bind(inputs[kinds[0]]).call for function in (scripted, plain)]
    with_script, without = time_in_turn(calls, request["repeat_s"])
    return out | {"time_us": with_script * 1e6, "unscripted_us": without * 1e6}


def is_defined(watching: Function, inputs: list[Array]) -> bool:
    """Return whether a watched payload converts no float out of range."""
    word = np.zeros(1, np.int64)
    watching.bind(inputs, word).call()
    return not word[0]


def payload_alone(text: str) -> Any:
    """Return the payload of a module without its script."""
    module = ir.Module.parse(text)
    for op in list(module.body.operations):
        if op.operation.name.startswith("transform."):
            op.operation.erase()
    return module


def compare_runs(
    kind: str, inputs: list[Array], functions: Functions, rules: ComparisonRules = ORDER_IS_FREE
) -> WorstDifference:
    """Run all functions on inputs of a kind; return the worst difference under `rules`."""
    compared = []
    for found, expected, moved, own in _run_all(functions, inputs):
        arrays = found.array, expected.array, moved, expected.element, rules, own
        compared.append(WorstDifference(kind, expected.name, difference(*arrays)))
    return max(compared, key=lambda one: one.difference.share)


def is_mixed(functions: Functions, inputs: list[Array]) -> bool:
    """Return whether a script mixes inputs before it multiplies them, as Winograd's transforms do.

    Roundings of a large input then reach results that do not depend on it. `inputs` have large
    numbers at a few places.
    """
    return any(
        moves_further(found.array, expected.array, moved, own, expected.element)
        for found, expected, moved, own in _run_all(functions, inputs)
    )


def _run_all(
    functions: Functions, inputs: list[Array]
) -> list[tuple[OutputArray, OutputArray, list[Array], list[Array]]]:
    """Return each result of the script, of the payload, and of the perturbed runs."""
    expected, found = _run(functions.reference, inputs), _run(functions.scripted, inputs)
    moved = [_run(functions.perturbed, inputs, seed) for seed in seeds(PERTURBED_RUNS)]
    own = [_run(functions.own, inputs, seed) for seed in seeds(PERTURBED_RUNS) if functions.own]
    return [
        (one, result, [run[number].array for run in moved], [run[number].array for run in own])
        for number, (one, result) in enumerate(zip(found, expected, strict=True))
    ]


def _run(function: Function, inputs: list[Array], *more: Array) -> list[OutputArray]:
    bound = function.bind(inputs, *more)
    bound.call()
    return bound.results()
