"""The process in which compiled models and networks run: `python -m tilewise.model.child`."""

import importlib.util
import sys
import time
from collections.abc import Mapping
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
    entry = entry_of(first.functions(), request["entry"])
    takes, gives = types_of(declaration_of(first, entry, request["declarations"]))
    random = np.random.default_rng(0)
    given = [(random_array(kind, random), HAL[kind.element]) for kind in takes]
    stage("compare")
    found = {name: module.results_and_writes(entry, given) for name, module in modules.items()}
    expected = _expected(request["reference"], device, entry, given, found)
    _require_numbers(expected, gives, entry)
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


def _expected(
    reference: str | None,
    device: Any,
    entry: str,
    given: list[tuple[Array, str]],
    found: Mapping[str, tuple[list[Array], tuple[int, ...]]],
) -> list[Array]:
    """Return the results of the reference; those of the first form without one."""
    if reference is None:
        return next(iter(found.values()))[0]
    return LoadedModule(Path(reference).read_bytes(), device).results(entry, given)


def _require_numbers(results: list[Array], kinds: list[TensorType], entry: str) -> None:
    if not has_numbers(results, kinds):
        raise TilewiseError(
            f"no result of {entry} has a finite number on random inputs, so nothing can be "
            "compared; give a function whose results are finite"
        )


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
    if not kind.element.startswith(("f", "bf")):
        return 0.0 if np.array_equal(found, expected) else float("inf")
    one, other = _wide(found, kind), _wide(expected, kind)
    finite = np.isfinite(other)
    if not np.array_equal(finite, np.isfinite(one)):
        return float("inf")
    if not np.array_equal(one[~finite], other[~finite], equal_nan=True):
        return float("inf")
    apart = np.sqrt(np.mean(np.square(one[finite] - other[finite]))) if finite.any() else 0.0
    size = np.sqrt(np.mean(np.square(other[finite]))) if finite.any() else 0.0
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
    entry = entry_of(module.functions(), None)
    takes, gives = types_of(declaration_of(module, entry, request["declarations"]))
    random = np.random.default_rng(0)
    arrays = [random_array(kind, random) for kind in takes]
    given = [(array, HAL[kind.element]) for array, kind in zip(arrays, takes, strict=True)]
    stage("compare")
    reference = LoadedModule(Path(request["reference"]).read_bytes(), device)
    expected = reference.results(entry, given)
    _require_numbers(expected, gives, entry)
    of_iree, overwrites = module.results_and_writes(entry, given)
    apart = [deviation(_results(network, arrays), expected, gives) for network in networks]
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


def _results(network: Any, arrays: list[Array]) -> list[Array]:
    """Return the results of a network in poisoned memory."""
    poison_activations(network)
    try:
        return list(network.run(*arrays))
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
