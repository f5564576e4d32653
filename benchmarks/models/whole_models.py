"""Whole models: IREE alone, IREE with our kernels, and PyTorch, in the same rounds.

    python -m benchmarks.models.whole_models resnet50 bert mlp --threads 1
    python -m benchmarks.models.whole_models bert --tokens 384
    GLIBC_TUNABLES=glibc.malloc.hugetlb=1 python -m benchmarks.models.whole_models bert --caching

The last one has pages of 2 MiB where the system offers them, for all, and IREE's caching allocator.
Problems without a stored schedule are tuned first. Every result is compared with PyTorch's in f64.
"""

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from examples.models import MODELS, Graph
from examples.models.bert import bert, bert_bf16
from examples.models.spellings import spelled
from tilewise.cli import main as tilewise
from tilewise.kernels.mlir.iree.runtime import LoadedModule, open_device
from tilewise.kernels.oracle.operands import Array, empty_aligned, to_bf16
from tilewise.model.examine import FILES
from tilewise.search.timing.measure import interleave

Run = Callable[[int], None]
ROUNDS = 15


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.models.whole_models")
    parser.add_argument("models", nargs="+", choices=MODELS, metavar="MODEL")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--trials", type=int, default=32, help="of what is not stored")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--tokens", type=int, default=128, help="of the forms of BERT")
    parser.add_argument("--caching", action="store_true", help="IREE's caching allocator")
    options = parser.parse_args()
    allocators = ("caching",) if options.caching else ()
    of_tokens = {f.__name__: partial(f, tokens=options.tokens) for f in (bert, bert_bf16)}
    for name in options.models:
        graph = {**MODELS, **of_tokens}[name](options.small)
        with TemporaryDirectory() as folder:
            measure(graph, Path(folder), options.threads, options.trials, allocators)


def measure(
    graph: Graph, folder: Path, threads: int, trials: int, allocators: tuple[str, ...]
) -> None:
    """Compile, run and time one model; print a row for each form."""
    source = folder / f"{graph.name}.mlir"
    source.write_text(spelled(graph))
    given = ["model", str(source), "-o", str(folder), "--no-ops", "--trials", str(trials)]
    target = target_of(threads)
    if tilewise([*given, "--target", target]) != 0:
        sys.exit(f"tilewise model {graph.name} failed")
    argument = graph.argument()
    device = open_device(threads, *allocators)
    runs, results = _iree(graph, argument, folder, device)
    torch_runs, torch_results, expected = pytorch(graph, argument, threads)
    runs, results = {**runs, **torch_runs}, {**results, **torch_results}
    samples = interleave(list(runs.values()), ROUNDS, threads)
    times = {name: 1e3 * median(one.times) for name, one in zip(runs, samples, strict=True)}
    ours = min(times[name] for name in times if name.startswith("library"))
    print(f"{graph.name}, {threads} threads")
    for name, time in times.items():
        apart = np.sqrt(np.mean((results[name] - expected) ** 2) / np.mean(expected**2))
        print(
            f"  {name:<24} {time:9.3f} ms  {time / ours:6.2f}x ours  error {apart:.2g}", flush=True
        )


def target_of(threads: int) -> str:
    """This processor with so many threads."""
    from tilewise.kernels.target import detect

    return detect().with_threads(threads).canonical


def _iree(
    graph: Graph, argument: Array, folder: Path, device: Any
) -> tuple[dict[str, Run], dict[str, Array]]:
    narrow = graph.given.dtype == "bf16"
    values = to_bf16(argument) if narrow else argument
    held = empty_aligned(values.shape, values.dtype.type)
    held[...] = values
    given = [(held, "BFLOAT_16" if narrow else "FLOAT_32")]
    runs, results = {}, {}
    for name, file in FILES.items():
        if not (folder / file).exists():
            print(f"{graph.name}, {name}: IREE does not compile it", flush=True)
            continue
        module = LoadedModule((folder / file).read_bytes(), device)
        results[name] = module.results("main", given)[0]
        runs[name] = module.bind("main", given, 1)
    return runs, results


def pytorch(
    graph: Graph, argument: Array, threads: int
) -> tuple[dict[str, Run], dict[str, Array], Array]:
    """PyTorch's ways: eager, JIT frozen, `torch.compile` with freezing; and the result in f64."""
    import torch
    import torch._inductor.config as inductor

    from examples.models.pytorch import Model, reference

    torch.set_num_threads(threads)
    inductor.freezing, inductor.cpp.threads = True, threads
    is_narrow = any(layer.gives.dtype == "bf16" for layer in graph.layers)
    narrow = torch.bfloat16 if is_narrow else None
    model = Model(graph, torch.float32, narrow).eval()
    given = model.argument(argument)
    with torch.inference_mode():
        frozen = torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.trace(model, given)))
    ways = {
        "PyTorch eager": model,
        "PyTorch JIT, frozen": frozen,
        "PyTorch compile, frozen": torch.compile(model),
    }
    runs, results = {}, {}
    for name, way in ways.items():
        with torch.no_grad():
            results[name] = way(given).float().numpy().copy()

        def run(repeat: int, way: Callable[..., object] = way) -> None:
            with torch.no_grad():
                for _ in range(repeat):
                    way(given)

        runs[name] = run
    return runs, results, reference(graph, argument)


if __name__ == "__main__":
    main()
