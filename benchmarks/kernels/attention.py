"""Attention as one kernel with an online softmax, and its decomposition as networks run it.

    python -m benchmarks.kernels.attention [TOKENS ...] [--depth 64] [--heads 12] [--causal]
        [--rounds 25] [--trials 40] [--db URL]

The decomposition is two tuned products and a pass over rows between them: of all heads at once, as
networks run it, of one head at a time with one buffer of scores, and of blocks of queries, which
with `--causal` read no keys behind the block. The fused kernel is made of the same micro-kernels
and row programs: for a block of queries it computes scores of a block of keys, their powers with
running maxima and sums, and adds the products with the values. Blocks of all keys rescale nothing.
The fastest tile and blocks are printed.

`bound` is what fusion can come up to: the products of one head at a time, the exponentials of as
many numbers in L1, and nothing else. Everything is timed in the same interleaved rounds of one
thread, and compared with float64 on random operands. Printed are medians and quartiles; ratios are
of lower quartiles, which other work on the machine disturbs less.
"""

import argparse
import ctypes
import functools
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count, product
from statistics import median, quantiles
from typing import Any

import numpy as np

from benchmarks.kernels.threads import best_steps
from tilewise.bench.machine import processor
from tilewise.kernels.native import Executable, lower
from tilewise.kernels.native.jit.loading import Loaded
from tilewise.kernels.native.jit.object_code import ObjectCode
from tilewise.kernels.native.microbench import peak_gflops
from tilewise.kernels.native.passes.passes import Chain, chain
from tilewise.kernels.native.passes.rows.program import Operation, RowProgram, Source, WrittenTensor
from tilewise.kernels.native.programs.compile import pass_object
from tilewise.kernels.oracle.operands import Array, empty_aligned, poison
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Pack, Register, Schedule, Unroll
from tilewise.kernels.target import resolve
from tilewise.search.timing.measure import interleave

TARGET = resolve("host")
TOLERANCE = 2e-5  # of means of normally distributed values
TILES = {16: ((6, 16), (5, 16)), 32: ((12, 32), (14, 32))}  # by vector registers
QUERIES, KEYS = (48, 64, 96, 128, 192), (64, 128, 256, 512)
PARTS, BOUND = ("scores", "softmax", "result"), ("scores", "exp", "result")
BLOCK = 64  # of queries that see the same keys, in the bound of a causal case
SIZES = ("all heads", "one head")
_numbers = count()


@functools.cache
def lowered(problem: str, schedule: Schedule) -> Executable:
    return lower(parse_problem(f"matmul:{problem},dtype=f32"), schedule, TARGET)


@functools.cache
def loaded(program: RowProgram) -> Loaded:
    name = f"attention_pass{next(_numbers)}"
    return Loaded(ObjectCode((name,), pass_object(program, name, TARGET)[0]))


@dataclass
class Rows:
    """A row program while it is written: each call returns the number of a value."""

    columns: int
    sources: list[Source] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)

    def read(self, row: int) -> int:
        """Read a tensor whose rows are `row` elements apart; of 1 each is one element."""
        self.sources.append(Source("f32", row > 1, row))
        return self.do("read", number=len(self.sources) - 1)

    def do(self, name: str, *of: int, number: float = 0.0) -> int:
        self.operations.append(Operation(name, of, number))
        return len(self.operations) - 1

    def code(self, wide: int, *narrow: int) -> Loaded:
        """Write a tensor with an element per column, and others with one per row."""
        made = [WrittenTensor("f32", wide, True), *(WrittenTensor("f32", n, False) for n in narrow)]
        program = RowProgram(self.columns, tuple(self.sources), tuple(self.operations), tuple(made))
        return loaded(program)


def softmax(columns: int, scale: float, is_masked: bool) -> Loaded:
    """Return the pass of the decomposition, as import writes it."""
    rows = Rows(columns)
    x = rows.do("multiply", rows.read(columns), rows.do("number", number=scale))
    if is_masked:
        x = rows.do("add", x, rows.read(columns))
    power = rows.do("exp", rows.do("subtract", x, rows.do("row max", x)))
    return rows.code(rows.do("divide", power, rows.do("row sum", power)))


def online(columns: int, scale: float, is_first: bool, is_masked: bool) -> Loaded:
    """Return the pass over scores of a block of keys.

    It reads scores, earlier maxima and sums unless `is_first`, and a mask; it writes powers,
    maxima, sums, and the factors of the earlier result.
    """
    rows = Rows(columns)
    x, factor = rows.read(columns), rows.do("number", number=scale)
    before = [] if is_first else [rows.read(1), rows.read(1)]
    if is_masked:
        x = rows.do("add", x, rows.read(columns))
    most = rows.do("row max", x)
    if before:
        most = rows.do("maxnum", before[0], most)
    less = rows.do("negate", rows.do("multiply", most, factor))
    power = rows.do("exp", rows.do("multiply add", x, factor, less))
    total = rows.do("row sum", power)
    if not before:
        return rows.code(power, most, total)
    again = rows.do("exp", rows.do("multiply add", before[0], factor, less))
    return rows.code(power, most, rows.do("multiply add", before[1], again, total), again)


def scaled(columns: int, is_last: bool) -> Loaded:
    """Return the pass that multiplies rows of the result by factors or, at last, divides them."""
    rows = Rows(columns)
    x, factor = rows.read(columns), rows.read(1)
    if is_last:
        factor = rows.do("divide", rows.do("number", number=1.0), factor)
    return rows.code(rows.do("multiply", x, factor))


def exponentials(columns: int) -> Loaded:
    """Return the pass of nothing but the exponentials."""
    rows = Rows(columns)
    return rows.code(rows.do("exp", rows.read(columns)))


def mask_of(queries: int, keys: int) -> Array:
    """Return what hides from the last `queries` of `keys` positions those behind each."""
    seen = np.tri(queries, keys, keys - queries, dtype=bool)
    return np.where(seen, 0, -np.inf).astype(np.float32)


@dataclass(frozen=True)
class Case:
    """Self-attention of one sequence: operands, the result in float64, schedules by problem."""

    heads: int
    tokens: int
    depth: int
    causal: bool
    tuned: Callable[[str], Schedule]

    @property
    def scale(self) -> float:
        return float(self.depth**-0.5)

    @functools.cached_property
    def operands(self) -> list[Array]:
        rng = np.random.default_rng(0)
        made = [self.empty() for _ in range(3)]
        for one in made:
            one[...] = rng.standard_normal(one.shape, np.float32)
        return made

    @functools.cached_property
    def expected(self) -> Array:
        q, k, v = (one.astype(np.float64) for one in self.operands)
        scores = q @ k.transpose(0, 2, 1) * self.scale
        scores += mask_of(self.tokens, self.tokens) if self.causal else 0
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        result: Array = powers / powers.sum(-1, keepdims=True) @ v
        return result

    def empty(self) -> Array:
        return empty_aligned((self.heads, self.tokens, self.depth), np.float32)


@dataclass(frozen=True, eq=False)
class Way:
    """One way to compute attention; `kept` is what its code points into."""

    name: str
    run: Callable[[int], None]
    out: Array
    kept: Any = field(repr=False, default=None)

    def error(self, case: Case) -> float:
        """Return the largest deviation of a run on poisoned memory; exit if it is too large."""
        poison(self.out)
        self.run(1)
        error = float(np.abs(self.out - case.expected).max())
        if not error <= TOLERANCE:
            raise SystemExit(f"{self.name}: the deviation is {error:.3g}")
        return error


@dataclass
class Steps:
    """Calls one after another, as a network has them."""

    pairs: list[int] = field(default_factory=list)
    kept: list[Any] = field(default_factory=list)

    def kernel(
        self, code: Executable, operands: Iterable[Array], panels: Array | None = None,
        packs: bool = False,
    ) -> None:  # fmt: skip
        """Call a kernel; with `panels` B is packed there, by a call of its own if `packs`."""
        shapes = code.problem.operand_shapes
        given = {name: one.reshape(shapes[name]) for name, one in zip("ABC", operands, strict=True)}
        scratch = {name: empty_aligned((n,), np.uint8) for name, n in code.scratch_bytes.items()}
        if panels is not None:
            scratch["B"] = panels.reshape(-1).view(np.uint8)
        call = code.bind(given, scratch)
        call()
        if packs:
            pack: Any = call.macro_kernel.prepare
            self.pairs += [ctypes.cast(pack, ctypes.c_void_p).value or 0, call.addresses[0]]
        self.pairs += [call.macro_kernel.entry, call.addresses[0]]
        self.kept.append(call)

    def rows(self, code: Loaded, rows: int, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Call a pass over so many rows of tensors at addresses."""
        words = [0, 0, 0, rows, *(word for one in sources for word in (one, 0)), *targets]
        row = np.array(words, np.int64)
        self.pairs += [code.addresses[0], row.ctypes.data]
        self.kept += [code, row]

    def way(self, name: str, out: Array) -> Way:
        pairs = np.array(self.pairs, np.int64)
        words = np.array([pairs.ctypes.data, 0, len(pairs) // 2], np.int64)
        code = Chain(chain().address)

        def run(repeat: int) -> None:
            for _ in range(repeat):
                code(words.ctypes.data)

        return Way(name, run, out, (pairs, words, self.kept))


def decomposed(
    case: Case, name: str, heads: int, queries: int, parts: Sequence[str] = PARTS
) -> Way:
    """Return products and softmax of so many heads and queries at a time, or some of its parts."""
    steps, out, tokens, depth = Steps(), case.empty(), case.tokens, case.depth
    (q, k, v), every = case.operands, f"batch={case.heads},m={tokens}"
    tuned = [case.tuned(f"{every},n={tokens},k={depth},transpose_b"),
             case.tuned(f"{every},n={depth},k={tokens}")]  # fmt: skip
    if heads == 1:
        tuned = [Schedule(one.steps[1:]) for one in tuned]  # without the tile of one head
    held, few = np.zeros(heads * queries * tokens, np.float32), np.full((16, 256), -1, np.float32)
    made, masks = few.copy(), list[Array]()
    for head, first in product(range(0, case.heads, heads), range(0, tokens, queries)):
        end, some = min(first + queries, tokens), slice(head, head + heads)
        rows, keys = end - first, end if case.causal else tokens
        scores, mask = held[: heads * rows * keys], mask_of(rows, keys)
        masks.append(mask)
        if "scores" in parts:
            problem = f"batch={heads},m={rows},n={keys},k={depth},transpose_b"
            steps.kernel(lowered(problem, tuned[0]), (q[some, first:end], k[some, :keys], scores))
        if "softmax" in parts:
            code = softmax(keys, case.scale, case.causal)
            for one in scores.reshape(heads, rows, keys):
                sources = [one.ctypes.data, mask.ctypes.data][: 1 + case.causal]
                steps.rows(code, rows, sources, [one.ctypes.data])
        if "exp" in parts:
            for _ in range(rows * keys // few.size):
                steps.rows(
                    exponentials(few.shape[1]), len(few), [few.ctypes.data], [made.ctypes.data]
                )
        if "result" in parts:
            problem = f"batch={heads},m={rows},n={depth},k={keys}"
            given = scores, v[some, :keys], out[some, first:end]
            steps.kernel(lowered(problem, tuned[1]), given)
    steps.kept += [held, few, made, masks]
    return steps.way(name, out)


def fused(case: Case, tile: tuple[int, int], queries: int, keys: int) -> Way:
    """Return the fused kernel with a register tile and blocks of queries and keys."""
    steps, out, tokens, depth = Steps(), case.empty(), case.tokens, case.depth
    (q, k, v), schedule = case.operands, Schedule((Pack("B"), Register(*tile), Unroll(4)))
    k_panels, v_panels = case.empty()[0], case.empty()[0]
    scores, *sums = (empty_aligned((queries, n), np.float32) for n in (keys, 1, 1, 1))
    mask = mask_of(keys, keys)
    s, most, total, again, hidden = (one.ctypes.data for one in (scores, *sums, mask))
    for head, first in product(range(case.heads), range(0, tokens, queries)):
        block = out[head, first : first + queries]
        rows, to = len(block), block.ctypes.data
        for begin in range(0, first + rows if case.causal else tokens, keys):
            some, before = slice(begin, begin + keys), [most, total] if begin else []
            packs = first == (begin if case.causal else 0)
            code = lowered(f"m={rows},n={keys},k={depth},transpose_b,weights=constant", schedule)
            given = q[head, first : first + rows], k[head, some], scores[:rows]
            steps.kernel(code, given, k_panels[some], packs)
            is_masked = case.causal and begin + keys > first
            seen = [hidden + mask[: first - begin].nbytes] if is_masked else []
            steps.rows(online(keys, case.scale, not begin, is_masked), rows, [s, *before, *seen],
                       [s, most, total, *([again] if begin else [])])  # fmt: skip
            if begin:
                steps.rows(scaled(depth, False), rows, [to, again], [to])
            adds = ",init=accumulate" if begin else ""
            code = lowered(f"m={rows},n={depth},k={keys},weights=constant{adds}", schedule)
            steps.kernel(code, (scores[:rows], v[head, some], block), v_panels[some], packs)
        steps.rows(scaled(depth, True), rows, [to, total], [to])
    steps.kept += [mask, *sums]
    return steps.way(f"fused {tile[0]}x{tile[1]}, {queries} queries, {keys} keys", out)


def all_fused(case: Case) -> list[Way]:
    """Return the fused kernel with all tiles and blocks, the fastest first."""
    ways, tokens = list[Way](), case.tokens
    widths = sorted({*(one for one in KEYS if one < tokens), tokens})
    for tile, queries, keys in product(TILES[TARGET.vector_registers], QUERIES, widths):
        if queries <= tokens and not tokens % keys and not (case.causal and keys % queries):
            ways.append(fused(case, tile, queries, keys))
            ways[-1].error(case)
    found = times(ways, 5)
    return sorted(ways, key=lambda way: median(found[way.name]))


def pytorch(case: Case) -> Way:
    """Return PyTorch's attention on one thread."""
    import torch

    torch.set_num_threads(1)
    attention, out = torch.nn.functional.scaled_dot_product_attention, case.empty()
    q, k, v, to = (torch.from_numpy(one)[None] for one in (*case.operands, out))

    def run(repeat: int) -> None:
        with torch.inference_mode():
            for _ in range(repeat):
                made = attention(q, k, v, is_causal=case.causal)
        to.copy_(made)

    return Way("PyTorch", run, out)


def times(ways: Sequence[Way], rounds: int) -> dict[str, list[float]]:
    samples = interleave([way.run for way in ways], rounds)
    return {way.name: one.times for way, one in zip(ways, samples, strict=True)}


def measured(case: Case, rounds: int) -> None:
    """Time all ways to compute attention, and print a line for each."""
    tokens, kernels, heads = case.tokens, all_fused(case), (case.heads, 1)
    rescaling = next((way for way in kernels if f" {tokens} keys" not in way.name), kernels[0])
    ways = [
        *(decomposed(case, name, n, tokens) for name, n in zip(SIZES, heads, strict=True)),
        *(decomposed(case, f"blocks of {n}", 1, n) for n in (64, 128, 256) if n < tokens),
        *dict.fromkeys((kernels[0], rescaling)), pytorch(case),
    ]  # fmt: skip
    errors = {way.name: way.error(case) for way in ways}
    parts = [decomposed(case, f"all heads, {part}", case.heads, tokens, [part]) for part in PARTS]
    bound = decomposed(case, "bound", 1, BLOCK if case.causal else tokens, BOUND)
    found = times([*ways, *parts, bound], rounds)
    flops, peak = 4 * case.heads * tokens**2 * case.depth, peak_gflops(TARGET, "f32")
    print(f"{case.heads} heads, {tokens} tokens, depth {case.depth}{', causal' * case.causal}: "
          f"products at the peak of {peak:.0f} GFLOP/s {flops / peak / 1e3:.0f} us")  # fmt: skip
    for name, one in found.items():
        low, middle, high = (1e6 * x for x in quantiles(one, n=4))
        over = [1e6 * quantiles(found[base], n=4)[0] / low for base in SIZES]
        ratios = " ".join(f"{ratio:5.2f}" for ratio in over)
        print(f"  {name:<34} {middle:9.1f} us ({low:.1f} to {high:.1f})  {ratios}  "
              f"{errors.get(name, '')}", flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("tokens", nargs="*", type=int, default=(128, 256, 512, 1024))
    parser.add_argument("--depth", type=int, default=64)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--causal", action="store_true")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--db", help="default: an empty one")
    options = parser.parse_args()
    print(f"{processor()}, {TARGET.canonical}; the last columns: ratios over both decompositions")
    with tempfile.TemporaryDirectory() as folder:
        url = options.db or f"sqlite:///{folder}/results.db"

        @functools.cache
        def tuned(problem: str) -> Schedule:
            text = f"matmul:{problem},dtype=f32"
            return Schedule.from_json(best_steps(text, TARGET.canonical, options.trials, url))

        for tokens in options.tokens:
            sizes = options.heads, tokens, options.depth, options.causal
            measured(Case(*sizes, tuned), options.rounds)


if __name__ == "__main__":
    main()
