"""Ops in an order of their own inside IREE: transposed for our kernel, and IREE alone.

    python -m benchmarks.models.transposed_ops [--seconds 1]

Each is a contraction as `numpy.einsum` spells it, a module of its own. IREE's default, its data
tiling, and the default with a library of the one kernel run in turns on the same operands; printed
are medians in microseconds, the gain over the faster of IREE's two, and the share of the turning:
what the op takes beyond the kernel on operands that lie as the problem's. The schedule is the one
that the analytical model puts first. Results are compared with NumPy's. An op that has no
pattern has a row with the reason.
"""

import argparse
import time
from statistics import geometric_mean, median
from typing import Any

import numpy as np

from benchmarks.kernels.objects import first_choice
from tilewise.kernels.dispatches.compilation import compiled_with
from tilewise.kernels.dispatches.executable import LibraryEntry, compiled
from tilewise.kernels.dispatches.extraction.extract import cut_module, patterns_of
from tilewise.kernels.dispatches.library import text_of
from tilewise.kernels.mlir.iree.compiler import DATA_TILING, compile_module
from tilewise.kernels.mlir.iree.runtime import LoadedModule, open_device
from tilewise.kernels.native import lower
from tilewise.kernels.oracle.operands import empty_aligned, make_operands
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.target import resolve

OPS: tuple[tuple[str, dict[str, int]], ...] = (
    ("bqhd,bkhd->bhqk", {"b": 1, "q": 128, "k": 128, "h": 12, "d": 64}),
    ("bhqk,bkhd->bqhd", {"b": 1, "q": 128, "k": 128, "h": 12, "d": 64}),
    ("bqhd,bkhd->bhqk", {"b": 1, "q": 512, "k": 512, "h": 8, "d": 64}),
    ("bhqk,bkhd->bqhd", {"b": 1, "q": 512, "k": 512, "h": 8, "d": 64}),
    ("hik,kj->ihj", {"h": 4, "i": 128, "j": 256, "k": 256}),
    ("mk,nk->nm", {"m": 256, "n": 512, "k": 384}),
    ("kxm,nxk->nm", {"k": 64, "x": 9, "m": 128, "n": 256}),
    ("bqhd,bkhd->bhqk", {"b": 1, "q": 32, "k": 32, "h": 4, "d": 16}),
)
"""Attention as JAX has it, heads behind positions, and contractions of other kinds."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.0, help="of turns for each op")
    options = parser.parse_args()
    print("   default  data tiling     transposed  over IREE  share of transposes  op")
    found = [measured(letters, sizes, options.seconds) for letters, sizes in OPS]
    gains = [gain for gain in found if gain is not None]
    print(f"geometric mean {geometric_mean(gains):.2f}, least {min(gains):.2f}")


def measured(letters: str, sizes: dict[str, int], seconds: float) -> float | None:
    """Print the row of an op; its gain, or None where it is left to IREE."""
    target = resolve("host")
    shapes = [tuple(sizes[one] for one in name) for name in letters.replace("->", ",").split(",")]
    module = einsum_module(letters, shapes)
    (cut,) = cut_module(module.encode())
    if cut.pattern is None:
        print(f"{'left to IREE':>56}  {told(letters, sizes)}: {cut.reason}", flush=True)
        return None
    problem = parse_problem(cut.problem)
    schedule = first_choice(problem, target)
    library = text_of(
        [compiled(LibraryEntry(problem, schedule), target)], target, (), patterns_of([cut])
    )
    made = compiled_with(module, library)
    if not made.kernels:
        raise SystemExit(f"{letters}: IREE does not call the kernel")
    codes = {
        "default": compile_module(module),
        "data tiling": compile_module(module, (DATA_TILING,)),
        "transposed": made.code,
    }
    random = np.random.default_rng(0)
    arrays = []
    for shape in shapes[:2]:
        arrays.append(empty_aligned(shape, np.float32))
        arrays[-1][...] = random.uniform(-1, 1, shape)
    given = [(one, "FLOAT_32") for one in arrays]
    expected = np.einsum(letters, *arrays, optimize=True)
    runs: dict[str, Any] = {}
    for name, code in codes.items():
        loaded = LoadedModule(code, open_device(1))
        (result,) = loaded.results("main", given)
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)
        runs[name] = loaded.bind("main", given, 1)
    runs["own"] = lower(problem, schedule, target).bind(make_operands(problem))
    times = in_turns(runs, seconds)
    gain = min(times["default"], times["data tiling"]) / times["transposed"]
    share = 1 - times["own"] / times["transposed"]
    print(
        f"{times['default']:10.1f}  {times['data tiling']:11.1f}  {times['transposed']:9.1f}"
        f"  {gain:9.2f}  {share:16.2f}  {told(letters, sizes)}",
        flush=True,
    )
    return gain


def told(letters: str, sizes: dict[str, int]) -> str:
    """An op as a row ends with it."""
    return f"{letters} {' '.join(f'{name}={size}' for name, size in sizes.items())}"


def in_turns(runs: dict[str, Any], seconds: float) -> dict[str, float]:
    """Medians of each in microseconds, called in turn until the time is over."""
    samples: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run(3)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(samples["own"]) < 9:
        for name, run in runs.items():
            start = time.perf_counter()
            run(3)
            samples[name].append((time.perf_counter() - start) / 3)
    return {name: 1e6 * median(taken) for name, taken in samples.items()}


def einsum_module(letters: str, shapes: list[tuple[int, ...]]) -> str:
    """A module with a contraction of f32 as `numpy.einsum` spells it, from zeros."""
    names = letters.replace("->", ",").split(",")
    dims = list(dict.fromkeys("".join(names)))
    maps = ", ".join(f"affine_map<({', '.join(dims)}) -> ({', '.join(name)})>" for name in names)
    kinds = ", ".join('"parallel"' if one in names[2] else '"reduction"' for one in dims)
    a, b, c = (f"tensor<{'x'.join(map(str, shape))}xf32>" for shape in shapes)
    return f"""
      func.func @main(%a: {a}, %b: {b}) -> {c} {{
        %zero = arith.constant 0.0 : f32
        %e = tensor.empty() : {c}
        %z = linalg.fill ins(%zero : f32) outs(%e : {c}) -> {c}
        %r = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}}
          ins(%a, %b : {a}, {b}) outs(%z : {c}) {{
        ^bb0(%x: f32, %y: f32, %w: f32):
          %p = arith.mulf %x, %y : f32
          %s = arith.addf %w, %p : f32
          linalg.yield %s : f32
        }} -> {c}
        return %r : {c}
      }}"""


if __name__ == "__main__":
    main()
