"""The process in which compiled models and networks run: `python -m tilewise.model.child`."""

import importlib.util
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

import numpy as np

from tilewise.errors import TilewiseError
from tilewise.kernels.errors import KernelsError
from tilewise.kernels.mlir.iree.runtime import LoadedModule, open_device
from tilewise.kernels.oracle.operands import Array
from tilewise.kernels.system.limited_child import reply_to_request, stage
from tilewise.kernels.system.typed_json import to_json
from tilewise.model.measuring import FormRuns, ModelTimes
from tilewise.model.network import LayerTime, Ran
from tilewise.model.signature import (
    HAL,
    TensorType,
    declaration_of,
    entry_of,
    random_array,
    types_of,
)
from tilewise.search.networks.lowering.memory import poison_activations
from tilewise.search.timing.measure import interleave
from tilewise.search.timing.samples import Run


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Load, compare and time forms or networks; reply with `refused` for the user."""
    does = _measured if "codes" in request else _ran
    try:
        return to_json(does(request))
    except (KernelsError, TilewiseError) as error:
        return {"refused": str(error)}


def _measured(request: dict[str, Any]) -> ModelTimes:
    stage("load")
    device = open_device(request["threads"])
    modules = {
        name: LoadedModule(Path(path).read_bytes(), device)
        for name, path in request["codes"].items()
    }
    first = next(iter(modules.values()))
    entry, takes, gives, [(given, expected)] = _call(first, device, request)
    found = {name: module.results_and_writes(entry, given) for name, module in modules.items()}
    stage("time")
    runs = [module.bind(entry, given, len(gives)) for module in modules.values()]
    until = time.monotonic() + request["budget_s"]
    samples = interleave(runs, request["rounds"], request["threads"], until=until)
    forms = {
        name: FormRuns(
            tuple(taken.times), deviation(found[name][0], expected, gives), found[name][1]
        )
        for name, taken in zip(modules, samples, strict=True)
    }
    return ModelTimes(entry, tuple(map(str, takes)), tuple(map(str, gives)), forms)


Given = list[tuple[Array, str]]


def _call(
    module: LoadedModule, device: Any, request: dict[str, Any], runs: int = 1
) -> tuple[str, list[TensorType], list[TensorType], list[tuple[Given, list[Array]]]]:
    """Return a function, its types, and random arguments of each run with the reference's results.

    Raises TilewiseError if no result of the first run has a finite number.
    """
    entry = entry_of(module.functions(), request.get("entry"))
    takes, gives = types_of(declaration_of(module, entry, request["declarations"]))
    random = np.random.default_rng(0)
    every = [[(random_array(kind, random), HAL[kind.element]) for kind in takes]
             for _ in range(runs)]  # fmt: skip
    stage("compare")
    reference = LoadedModule(Path(request["reference"]).read_bytes(), device)
    results = [reference.results(entry, given) for given in every]
    if not has_numbers(results[0], gives):
        raise TilewiseError(
            f"no result of {entry} has a finite number on random inputs, so nothing can be "
            "compared; give a function whose results are finite"
        )
    return entry, takes, gives, list(zip(every, results, strict=True))


def has_numbers(results: list[Array], kinds: list[TensorType]) -> bool:
    """Return whether any result is finite, or there are no results to compare."""
    return not any(one.size for one in results) or any(
        bool(np.isfinite(_wide(one, kind)).any()) for one, kind in zip(results, kinds, strict=True)
    )


def deviation(found: list[Array], expected: list[Array], kinds: list[TensorType]) -> float:
    """Return the largest relative rms deviation of any result."""
    pairs = zip(found, expected, kinds, strict=True)
    return max((_apart(one, other, kind) for one, other, kind in pairs), default=0.0)


def _apart(found: Array, expected: Array, kind: TensorType) -> float:
    if kind.element == "i8":  # floats rounded to either neighbour, with or without a sign
        return min(_of_codes(found.view(sign), expected.view(sign)) for sign in (np.int8, np.uint8))
    if not kind.element.startswith(("f", "bf")):
        return 0.0 if np.array_equal(found, expected) else float("inf")
    one, other = _wide(found, kind), _wide(expected, kind)
    finite = np.isfinite(other)
    if not np.array_equal(finite, np.isfinite(one)):
        return float("inf")
    if not np.array_equal(one[~finite], other[~finite], equal_nan=True):
        return float("inf")
    return _relative(one[finite], other[finite])


def _of_codes(found: Array, expected: Array) -> float:
    one, other = (array.astype(np.float64).ravel() for array in (found, expected))
    if np.any(np.abs(one - other) > 1):
        return float("inf")
    first = np.flatnonzero(one != other)[:1]  # a single one says nothing of a small result
    one[first] = other[first]
    return _relative(one, other)


def _relative(one: Array, other: Array) -> float:
    """Return the rms difference of two arrays over the rms of the second."""
    apart, size = (np.sqrt(np.mean(x * x)) if x.size else 0.0 for x in (one - other, other))
    return float(apart / size) if size else float("inf" if apart else 0.0)


def _wide(array: Array, kind: TensorType) -> Array:
    if kind.element == "bf16":
        return (array.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return array.astype(np.float64)


def _ran(request: dict[str, Any]) -> Ran:
    """Run written networks and IREE's code of their model."""
    stage("load")
    networks = [_imported(Path(one["folder"])).load() for one in request["networks"]]
    threads = networks[0].about["threads"]
    device = open_device(threads)
    module = LoadedModule(Path(request["code"]).read_bytes(), device)
    entry, _, gives, cases = _call(module, device, request, runs=2)
    given, expected = cases[0]
    of_iree, overwrites = module.results_and_writes(entry, given)
    apart = [deviation_of(network, cases, gives) for network in networks]
    stage("time")
    until = time.monotonic() + request["budget_s"]
    runs = [*map(_repeated, networks), module.bind(entry, given, len(gives))]
    *ours, its = interleave(runs, request["rounds"], threads, until=until)
    kept = min(range(len(ours)), key=lambda one: median(ours[one].times))
    network, others = networks[kept], [one for i, one in enumerate(ours) if i != kept]
    parts = zip(network.about["parts"], network.times(request["rounds"]), strict=True)
    return Ran(
        kept, tuple(LayerTime(label, part["node"], time_us) for part, (label, time_us) in parts),
        tuple(ours[kept].times), tuple(its.times), tuple(others[0].times) if others else (),
        max(apart), **request["networks"][kept]["sizes"],
        iree_deviation=deviation(of_iree, expected, gives), iree_overwrites=overwrites,
    )  # fmt: skip


def deviation_of(
    network: Any, cases: Iterable[tuple[Given, list[Array]]], kinds: list[TensorType]
) -> float:
    """Return the largest deviation of a network in poisoned memory, and of its next runs.

    The next runs show whether one leaves halos or scratch memory that another cannot use.
    """
    poison_activations(network)
    try:
        return max(deviation(list(network.run(*(array for array, _ in given))), expected, kinds)
                   for given, expected in cases)  # fmt: skip
    except ValueError as error:  # of other arguments than IREE's
        raise TilewiseError(str(error)) from error


def _imported(folder: Path) -> ModuleType:
    """Import a folder as a package."""
    found = importlib.util.spec_from_file_location(
        folder.name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert found is not None
    assert found.loader is not None
    sys.modules[folder.name] = made = importlib.util.module_from_spec(found)
    found.loader.exec_module(made)
    return made


def _repeated(network: Any) -> Run:
    def run(repeat: int) -> None:
        for _ in range(repeat):
            network()

    return run


if __name__ == "__main__":
    reply_to_request(answer)
