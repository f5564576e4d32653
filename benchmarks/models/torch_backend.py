"""PyTorch's models by `backend="tilewise"` and by Inductor with freezing, in the same rounds.

    python -m benchmarks.models.torch_backend [ROW ...] [--threads 2] [--trials 32] [--store URL]

A row is a model, `dynamic` (BERT with 16 to 256 tokens, timed at several lengths in turn),
`missing` (MobileNetV2 without any stored kernel, where nothing may be lost) or `call` (a small
kernel alone, and the operator that calls it). Problems that the store lacks are tuned first, so a
second run only measures. Ratios are medians of rounds, with 95% intervals.
"""

import argparse
import ctypes
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from copy import deepcopy
from functools import partial
from io import StringIO
from statistics import geometric_mean, median
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch._inductor.config as inductor

import tilewise.torch
from benchmarks.models.torch_models import MODELS, made
from benchmarks.report import conditions
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.statistics import median_interval
from tilewise.linked.kernels import Source
from tilewise.linked.libraries import cache_folder
from tilewise.model.libraries import largest
from tilewise.model.report import tolerance
from tilewise.search.timing.measure import interleave
from tilewise.torch.operators import load_operators

Run = Callable[[int], None]
ROUNDS, FEW_ROUNDS = 25, 9
LONG_S = 0.3
"""A call that takes longer is timed in few rounds."""
OTHERS = ("dynamic", "missing", "call")
TOKENS, LENGTHS = (16, 256), (17, 64)
"""Bounds of the row `dynamic`, and what is timed besides 128 tokens."""
SMALL = "matmul:m=4,n=16,k=16,dtype=f32,bias,weights=constant"
"""Of the call that is counted."""


def main() -> int:
    """Measure the rows, and print the geometric mean of the models."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.models.torch_backend")
    parser.add_argument("rows", nargs="*", metavar="ROW", help=", ".join((*MODELS, *OTHERS)))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--trials", type=int, default=32, help="of what is not stored")
    parser.add_argument("--store", help="URL; default: as TILEWISE_DB says")
    parser.add_argument("--ops", action="store_true", help="print the decision for each op")
    given = parser.parse_args()
    rows = given.rows or [*MODELS, *OTHERS]
    if unknown := set(rows) - {*MODELS, *OTHERS}:
        parser.error(f"no rows: {', '.join(sorted(unknown))}")
    torch.set_num_threads(given.threads)
    options = {"trials": given.trials} | ({"store": given.store} if given.store else {})
    print(conditions(), f"torch {torch.__version__}, {given.threads} threads", sep="\n")
    print(
        "| model | Inductor | tilewise | ratio | ops | error (allowed) |\n|---|---|---|---|---|---|"
    )
    ratios: list[float] = []
    is_right = True
    with torch.no_grad(), inductor.patch({"cpp.threads": given.threads}):
        for row in rows:
            if row == "call":
                count_call(options)
                continue
            with TemporaryDirectory() as folder:
                empty = {"trials": 0, "store": f"sqlite:///{folder}/empty.db"}
                others = {"missing": ("mobilenet_v2", empty), "dynamic": ("bert", options)}
                model, row_options = others.get(row, (row, options))
                ratio, right = compare(row, model, row_options, given.threads, given.ops)
            is_right &= right
            if row in MODELS:
                ratios.append(ratio)
    if ratios:
        print(f"geometric mean {geometric_mean(ratios):.3f}, lowest {min(ratios):.3f}")
    return 0 if is_right else 1


def compare(
    row: str, name: str, options: dict[str, Any], threads: int, has_ops: bool
) -> tuple[float, bool]:
    """Print a row; return the median ratio, and whether the result is right."""
    torch.compiler.reset()
    model, given = made(name)
    inputs = [given]
    if row == "dynamic":
        inputs += [given[:, :length].clone() for length in LENGTHS]
        torch._dynamo.mark_dynamic(given, 1, min=TOKENS[0], max=TOKENS[1])
    exact = deepcopy(model).double()(given.double())
    ways = {
        True: torch.compile(deepcopy(model), dynamic=False),
        False: torch.compile(model, backend="tilewise", dynamic=False, options=options),
    }
    errors = {}
    for is_frozen, way in ways.items():
        with inductor.patch(freezing=is_frozen):
            errors[is_frozen] = float((way(given).double() - exact).norm() / exact.norm())
    del exact
    with redirect_stdout(StringIO()) as text:
        ops = tilewise.torch.report(model)
    counts = Counter(op.problem for op in ops if op.problem)
    allowed = tolerance((largest(problem), count) for problem, count in counts.items())
    runs = [_run(way, inputs, is_frozen) for is_frozen, way in ways.items()]
    few, *_ = interleave(runs[:1], 1, threads)
    rounds = ROUNDS if few.times[0] < LONG_S else FEW_ROUNDS
    theirs, ours = (one.times for one in interleave(runs, rounds, threads))
    ratios = [their / our for their, our in zip(theirs, ours, strict=True)]
    used = sum(bool(op.kernel) for op in ops)
    columns = (
        row,
        *(_spread([1e3 * time for time in times], "ms") for times in (theirs, ours)),
        _spread(ratios, "x"),
        f"{used} of {len(ops)}",
        f"{errors[False]:.1e} ({allowed:.1e}); Inductor {errors[True]:.1e}",
    )
    print(f"| {' | '.join(columns)} |", flush=True)
    if has_ops:
        print(text.getvalue())
    return median(ratios), errors[False] <= allowed


def _run(way: Callable[..., object], inputs: Sequence[torch.Tensor], is_frozen: bool) -> Run:
    repeated = _repeated(lambda: [way(given) for given in inputs])

    def run(repeat: int) -> None:
        with inductor.patch(freezing=is_frozen):  # a guard reads it
            repeated(repeat)

    return run


def _spread(values: list[float], unit: str) -> str:
    """Return a median and its 95% interval."""
    low, high = median_interval(len(values))
    ordered = sorted(values)
    return f"{median(values):.4g} {unit} ({ordered[low]:.4g} to {ordered[high]:.4g})"


def count_call(options: dict[str, Any]) -> None:
    """Print the time of a kernel, that of the operator which calls it, and their difference."""
    with Source(**options).open(load_operators, [[SMALL]]) as kernels:
        kernel = kernels.load(SMALL)
    if kernel is None:
        sys.exit(f"call: {SMALL} is not stored; give --trials")
    shapes = parse_problem(SMALL).operand_shapes
    a, b, bias, out = (torch.randn(shapes[name]) for name in ("A", "B", "bias", "C"))
    packed = torch.ops.tilewise.prepare(b, kernel.name)
    scratch = torch.empty(kernel.scratch_bytes + 1, dtype=torch.uint8)
    tensors = (a, packed, bias, out, scratch)
    operands = (a, packed, bias, None, kernel.name)
    pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]
    described = next(p for p in cache_folder().glob("*.json") if kernel.symbol in p.read_text())
    function = ctypes.CDLL(str(described.with_suffix(".so")))[kernel.symbol]
    calls = (
        partial(torch.ops.tilewise.call.default, *operands),
        partial(function, *pointers),
        partial(function, *[None] * len(pointers)),  # returns an error code at once
    )
    operator, whole, nothing = (
        one.times for one in interleave(list(map(_repeated, calls)), ROUNDS)
    )
    alone = [1e6 * (one - other) for one, other in zip(whole, nothing, strict=True)]
    called = [1e6 * time for time in operator]
    over = [one - other for one, other in zip(called, alone, strict=True)]
    columns = (_spread(alone, "us"), _spread(called, "us"), f"+{_spread(over, 'us')}")
    print(f"| call | {' | '.join(columns)} | | |", flush=True)


def _repeated(call: Callable[[], object]) -> Run:
    def run(repeat: int) -> None:
        for _ in range(repeat):
            call()

    return run


if __name__ == "__main__":
    sys.exit(main())
