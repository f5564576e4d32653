"""Peers: each way of each peer against the reference, on odd shapes and several threads."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from statistics import median

import numpy as np
import pytest

from tests.cases import some
from tilewise.kernels.dispatches.executable import LibraryEntry
from tilewise.kernels.dispatches.library import library_text
from tilewise.kernels.mlir.iree.runtime import open_device
from tilewise.kernels.oracle.operands import Array, Operands, make_operands
from tilewise.kernels.oracle.reference import Expected, reference
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.target import Target, resolve
from tilewise.search.model.analytical import AnalyticalModel
from tilewise.search.model.prior import prior_points
from tilewise.search.peers import available_peers, installed_peers, iree, missing_packages
from tilewise.search.peers.iree import Maker
from tilewise.search.peers.onednn import packs_weights
from tilewise.search.peers.screen import MAKERS, screened
from tilewise.search.peers.variant import Bench, PeerAbsentError, Variant, checked, right_ways
from tilewise.search.records import OWN
from tilewise.search.space.space import Space
from tilewise.search.timing.samples import PAUSE_S

PLAIN = "matmul:m=7,n=33,k=19,dtype="
CLAIMS = {
    "openblas": [
        PLAIN + "f32",
        PLAIN + "f64,transpose_a,bias",
        PLAIN + "f32,transpose_b,init=accumulate,bias,epilogue=relu",
        PLAIN + "f32,weights=constant,epilogue=relu",
        PLAIN + "f32,bias,epilogue=relu6",
        "matmul:m=1,n=70,k=35,dtype=f32",
        "matmul:m=5,n=1,k=9,dtype=f64",
        "matmul:batch=3,m=9,n=21,k=17,dtype=f32,transpose_a,transpose_b,bias,epilogue=relu",
        "conv2d:n=2,h=6,w=5,ci=3,co=4,kh=1,kw=1,dtype=f32,bias,add,epilogue=relu",
        "conv2d:n=2,h=6,w=5,ci=3,co=4,kh=1,kw=1,layout=nchw_fchw,dtype=f32,bias,epilogue=relu",
    ],
    "onednn": [
        PLAIN + "f32,bias,add,epilogue=relu", PLAIN + "bf16,out=bf16,bias,epilogue=gelu_tanh",
        *(PLAIN + dtype + rest for dtype in ("f32", "f64", "bf16", "f16", "i8")
          for rest in ("", ",transpose_a,transpose_b,bias", ",init=accumulate,bias,epilogue=relu",
                       ",weights=constant,transpose_b,bias,epilogue=relu")),
        "matmul:m=1,n=70,k=35,dtype=f32,weights=constant",
        "matmul:m=1,n=70,k=35,dtype=bf16",
        "matmul:m=1,n=70,k=35,dtype=i8",
        "matmul:m=5,n=1,k=9,dtype=bf16,transpose_b",
        *(f"matmul:batch=3,m=9,n=21,k=17,dtype={dtype},transpose_b,bias,epilogue=relu"
          for dtype in ("f32", "f64", "bf16", "f16", "i8")),
        "matmul:batch=3,m=9,n=21,k=17,dtype=f32,init=accumulate",
        *(f"conv2d:n=2,h=9,w=7,ci=6,co=10,kh=3,kw=2,dtype={dtype}{rest}"
          for dtype in ("f32", "f64", "bf16", "f16")
          for rest in ("", ",stride=2,dilation=2,pad=1", ",pad=2,bias,epilogue=relu",
                       ",weights=constant,pad=1,bias",
                       ",layout=nchw_fchw,weights=constant,stride=2,bias,epilogue=relu",
                       ",init=accumulate,pad=1,bias,epilogue=relu",
                       ",layout=nchw_fchw,init=accumulate,weights=constant")),
        PLAIN + "f32,bias,epilogue=relu6",
        PLAIN + "bf16,transpose_b,weights=constant,epilogue=relu6",
        *("conv2d:n=2,h=9,w=7,ci=6,co=10,kh=3,kw=2,dtype=f32,bias,epilogue=relu6" + rest
          for rest in ("", ",init=accumulate", ",layout=nchw_fchw,weights=constant")),
        "conv2d:n=1,h=9,w=7,ci=6,co=10,kh=3,kw=3,dtype=f16,epilogue=relu6",
        "conv2d:n=1,h=9,w=7,ci=8,co=8,kh=3,kw=3,groups=8,pad=1,dtype=f32",
        "conv2d:n=1,h=9,w=7,ci=8,co=12,kh=3,kw=3,groups=4,weights=constant,dtype=f32",
        PLAIN + "i8,weights=constant",
        *("conv2d:n=2,h=9,w=7,ci=6,co=10,kh=3,kw=2,stride=2,pad=1,weights=constant,dtype=i8" + rest
          for rest in ("", ",layout=nchw_fchw")),
    ],
    "iree": [
        *(PLAIN + dtype for dtype in ("f32", "f64", "i32", "bf16", "f16", "i8")),
        PLAIN + "f32,transpose_a,transpose_b,init=accumulate,bias,epilogue=relu",
        PLAIN + "bf16,bias,epilogue=relu6",
        PLAIN + "bf16,transpose_b,weights=constant,bias,epilogue=relu",
        PLAIN + "i8,transpose_a,weights=constant,init=accumulate,epilogue=relu",
        "matmul:m=1,n=70,k=35,dtype=f32,weights=constant",
        "matmul:batch=3,m=9,n=21,k=17,dtype=f32,transpose_b,bias,epilogue=relu",
        "conv2d:n=2,h=9,w=7,ci=6,co=10,kh=3,kw=2,stride=2,dilation=2,pad=1,dtype=f32,bias",
        "conv2d:n=2,h=9,w=7,ci=6,co=10,kh=3,kw=2,pad=2,layout=nchw_fchw,dtype=f32,bias,"
        "epilogue=relu,weights=constant",
        "conv2d:n=1,h=9,w=7,ci=6,co=10,kh=3,kw=2,dtype=i8,pad=1",
        "conv2d:n=1,h=9,w=7,ci=6,co=10,kh=3,kw=2,dtype=f32,init=accumulate,bias,epilogue=relu",
        "conv2d:n=1,h=9,w=7,ci=8,co=8,kh=3,kw=3,groups=8,pad=1,dtype=f32",
        "conv2d:n=1,h=9,w=7,ci=8,co=8,kh=3,kw=3,groups=8,layout=nchw_fchw,dtype=f32",
        "conv2d:n=2,h=9,w=7,ci=8,co=12,kh=3,kw=2,groups=4,pad=1,dtype=i8,weights=constant,bias",
        "conv2d:n=2,h=9,w=7,ci=8,co=12,kh=3,kw=2,groups=4,stride=2,dilation=2,dtype=bf16,"
        "layout=nchw_fchw,epilogue=relu",
        PLAIN + "bf16,out=bf16,bias,add,epilogue=gelu",
        PLAIN + "f32,init=accumulate,epilogue=silu",
        "conv2d:n=1,h=9,w=7,ci=6,co=10,kh=3,kw=2,stride=2x1,pad=1x0x0x2,dtype=bf16,out=bf16,add",
    ],
}  # fmt: skip
CASES = [(peer, text) for peer, texts in CLAIMS.items() for text in texts]


def require(peer: str) -> None:
    missing = missing_packages(peer)
    if missing:
        pytest.skip(f"peer {peer} needs {', '.join(missing)}, which the extra `peers` installs")


@dataclass(frozen=True)
class Case:
    """A problem's operands as the kernels hold them, and the reference's answer."""

    problem: Problem
    operands: Operands
    expected: Expected
    initial: Array

    @property
    def bench(self) -> Bench:
        return Bench(self.problem, self.operands, self.expected, self.initial, threads=1)

    def why_wrong(self, variant: Variant) -> str | None:
        try:
            checked(variant, self.bench)
        except PeerAbsentError as wrong:
            return str(wrong)
        return None


def make_case(text: str) -> Case:
    problem = parse_problem(text)
    operands = make_operands(problem, 5)
    return Case(problem, operands, reference(problem, operands), operands["C"].copy())


@pytest.mark.parametrize(("peer", "text"), some(CASES, all_of=2))
def test_what_a_peer_claims_it_computes_rightly(peer: str, text: str) -> None:
    require(peer)
    case = make_case(text)
    ways = screened(MAKERS[peer], case.bench)
    assert ways and all(way.variant.peer == peer for way in ways)
    for way in ways:  # again, so that a second run adds up or overwrites as the first did
        assert case.why_wrong(way.variant) is None


@pytest.mark.parametrize(("peer", "text", "says"), [
    ("openblas", PLAIN + "i32", "BLAS has no i32 product"),
    ("openblas", PLAIN + "bf16", "BLAS has no bf16 product"),
    ("openblas", "conv2d:n=1,h=5,w=5,ci=3,co=4,kh=3,kw=3,dtype=f32", "no convolution"),
    ("openblas", "conv2d:n=1,h=5,w=5,ci=3,co=4,kh=1,kw=1,stride=2,dtype=f32", "no conv"),
    ("onednn", PLAIN + "i32", "oneDNN has no i32 product"),
    ("onednn", "conv2d:n=1,h=5,w=5,ci=3,co=4,kh=3,kw=3,dtype=i8", "convolves i8 alone"),
])  # fmt: skip
def test_what_a_peer_cannot_do_has_a_reason(peer: str, text: str, says: str) -> None:
    require(peer)
    with pytest.raises(PeerAbsentError, match=says):
        screened(MAKERS[peer], make_case(text).bench)


@pytest.mark.parametrize(("text", "names"), [
    (PLAIN + "f32", {"mm (MKL)", "linear"}),
    (PLAIN + "bf16,weights=constant", {"mm", "linear", "linear, packed weights"}),
    ("conv2d:n=1,h=9,w=7,ci=6,co=10,kh=3,kw=2,dtype=f32,weights=constant",
     {*(f"conv2d, {how} weights" for how in ("hwio", "ohwi", "oihw", "packed"))}),
])  # fmt: skip
def test_constant_weights_are_packed_by_onednn_ahead(text: str, names: set[str]) -> None:
    require("onednn")
    case = make_case(text)
    names = names if packs_weights(case.problem) else names - {"linear, packed weights"}
    assert {one.name for one in MAKERS["onednn"](case.problem, case.operands, 1)} == names


QUANTISED = "matmul:m=3,n=64,k=256,weights=constant,"


@pytest.mark.parametrize(("peer", "keys"), [
    ("onednn", "dtype=bf16,b=i4,group=32,scale=bf16"),
    ("onednn", "dtype=f32,b=i4,group=64,zero_b=u4,transpose_b"),
    ("onednn", "dtype=bf16,b=i8,group=k,scale=bf16,transpose_b"),
    ("onnxruntime", "dtype=f32,b=i4,group=32,scale=f16,zero_b=u4"),
    ("onnxruntime", "dtype=f32,b=i4,group=128,a=dynamic_i8,transpose_b"),
    ("onnxruntime", "dtype=f32,b=i8,group=64,zero_b=u8"),
])  # fmt: skip
def test_peers_multiply_by_quantised_weights(peer: str, keys: str) -> None:
    require(peer)
    case = make_case(QUANTISED + keys)
    ways = screened(MAKERS[peer], case.bench)
    assert [case.why_wrong(way.variant) for way in ways] == [None]


@pytest.mark.parametrize(("peer", "keys", "says"), [
    ("openblas", "dtype=f32,b=i8,group=64", "no quantised weights"),
    ("onednn", "dtype=f32,b=i8,group=64", "scale for each column"),
    ("onnxruntime", "dtype=bf16,b=i8,group=64", "f32 on a processor"),
    ("onnxruntime", "dtype=f32", "quantised weights alone"),
    ("onnxruntime", "dtype=f32,b=i8,group=64,bias", "without epilogues"),
])  # fmt: skip
def test_peers_say_which_quantised_weights_they_lack(peer: str, keys: str, says: str) -> None:
    require(peer)
    case = make_case(QUANTISED + keys)
    with pytest.raises(PeerAbsentError, match=says):
        MAKERS[peer](case.problem, case.operands, 1)


def test_idle_threads_of_onnxruntime_sleep_before_the_next_contender_runs() -> None:
    require("onnxruntime")
    case = make_case("matmul:m=64,n=512,k=512,weights=constant,dtype=f32,b=i8,group=64")
    (way,) = MAKERS["onnxruntime"](case.problem, case.operands, 2)
    spent = []
    for _ in range(7):
        way.run(1)
        time.sleep(PAUSE_S)
        spent.append(-time.process_time())
        time.sleep(0.02)
        spent[-1] += time.process_time()
    assert median(spent) < 2e-3


def matmul_way(case: Case, name: str, compute: Callable[[Array, Array], Array]) -> Variant:
    out = case.operands["C"]

    def run(_repeat: int) -> None:
        out[...] = compute(case.operands["A"], case.operands["B"])

    return Variant("fake", name, run, lambda: out)


@pytest.fixture
def case() -> Case:
    return make_case(PLAIN + "f32")


def offer(monkeypatch: pytest.MonkeyPatch, *variants: Variant) -> None:
    monkeypatch.setitem(MAKERS, "fake", lambda *_: list(variants))


def test_a_peer_that_is_wrong_or_writes_nothing_is_absent(monkeypatch, case: Case) -> None:
    offer(monkeypatch, matmul_way(case, "off", lambda a, b: a @ b + np.float32(0.01)))
    with pytest.raises(PeerAbsentError, match=r"off: wrong: the largest deviation is 0\.01"):
        screened(MAKERS["fake"], case.bench)
    out = case.operands["C"]
    out[...] = case.expected.value  # which must not count
    offer(monkeypatch, Variant("fake", "idle", lambda _repeat: None, lambda: out))
    with pytest.raises(PeerAbsentError, match="idle: wrong"):
        screened(MAKERS["fake"], case.bench)


def test_a_right_way_stands_beside_wrong_and_raising_ones(monkeypatch, case: Case) -> None:
    def raising(_repeat: int) -> None:
        raise RuntimeError("no kernel for this processor")

    right = matmul_way(case, "right", np.matmul)
    out = case.operands["C"]
    wrong = matmul_way(case, "wrong", lambda a, b: a @ b * 2)
    ways = [wrong, Variant("fake", "raising", raising, lambda: out), right]
    offer(monkeypatch, *ways)
    assert right_ways(ways, case.bench) == [right]
    assert [way.variant.name for way in screened(MAKERS["fake"], case.bench)] == ["right"]


def test_clearly_slower_ways_are_not_timed(monkeypatch: pytest.MonkeyPatch, case: Case) -> None:
    now = [0.0]
    for clock in ("perf_counter", "thread_time"):
        monkeypatch.setattr(time, clock, lambda: now[0])

    def taking(*lengths: float) -> Callable[[Array, Array], Array]:
        """A product that takes so many seconds each time, the first of which is checked."""
        left = list(lengths)

        def compute(a: Array, b: Array) -> Array:
            now[0] += left.pop(0)
            return a @ b

        return compute

    offer(
        monkeypatch,
        matmul_way(case, "slow", taking(1.9, 0.16, 0.16, 0.16)),
        matmul_way(case, "near", taking(1.9, 0.3, 0.14, 0.2)),
        matmul_way(case, "fast", taking(1.9, 0.2, 0.3, 0.1)),
        matmul_way(case, "slowest", taking(1.9, 0.6)),
        matmul_way(case, "slowest of all", taking(2.1)),
    )
    assert [way.variant.name for way in screened(MAKERS["fake"], case.bench)] == ["fast", "near"]


def test_rounding_to_a_narrow_output_is_allowed_and_no_more() -> None:
    case = make_case(PLAIN + "bf16")
    value = case.expected.value.astype(np.float32)

    def rounded(error: float) -> Variant:
        return Variant("fake", "narrow", lambda _n: None, lambda: value * (1 + error), "bf16")

    assert case.why_wrong(rounded(2.0**-9)) is None
    assert "deviation" in (case.why_wrong(rounded(2.0**-6)) or "")
    assert "deviation" in (case.why_wrong(replace(rounded(2.0**-9), output=None)) or "")


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(module: str) -> object:
        return None if module in ("torch", "iree.runtime", "onnxruntime") else find_spec(module)

    monkeypatch.setattr("tilewise.search.peers.find_spec", find)
    assert missing_packages("onednn") == ["torch"]
    assert missing_packages("openblas") == []
    assert "iree.runtime" in missing_packages("iree")
    assert installed_peers() == ("openblas",)


def test_the_table_of_one_search_shows_only_openblas_and_only_for_plain_products() -> None:
    plain, biased = make_case(PLAIN + "f32"), make_case(PLAIN + "f32,bias")
    assert {way.peer for way in available_peers(plain.problem, plain.operands, 1)} == {"openblas"}
    assert available_peers(biased.problem, biased.operands, 1) == []
    assert available_peers(parse_problem(PLAIN + "i32"), {}, 1) == []


PRODUCT = "matmul:m=150,n=170,k=190,dtype=f32"
TASKS = Path("/proc/self/task")


@pytest.mark.full
@pytest.mark.parametrize("peer", ["openblas", "onednn", "iree"])
@pytest.mark.parametrize("text", [PRODUCT, "matmul:m=7,n=33,k=19,dtype=f32,bias,epilogue=relu"])
def test_results_on_two_threads_are_right(peer: str, text: str) -> None:
    require(peer)
    case = make_case(text)
    ways = screened(MAKERS[peer], replace(case.bench, threads=2))
    assert ways and [case.why_wrong(way.variant) for way in ways] == [None] * len(ways)


@pytest.mark.parametrize("threads", [2, 1])
def test_torch_takes_the_threads_of_the_target(threads: int) -> None:
    require("onednn")
    import torch

    case = make_case(PRODUCT)
    assert MAKERS["onednn"](case.problem, case.operands, threads)
    assert torch.get_num_threads() == threads


def iree_workers() -> set[str]:
    names = {task.name: (task / "comm").read_text() for task in TASKS.iterdir()}
    return {number for number, name in names.items() if name.startswith("iree-worker")}


def new_workers(before: set[str], expected: int) -> int:
    """How many there are now; they name themselves, so a slow machine gets a while."""
    deadline = time.monotonic() + 20
    while len(iree_workers() - before) < expected and time.monotonic() < deadline:
        time.sleep(0.01)
    return len(iree_workers() - before)


@pytest.mark.full
@pytest.mark.skipif(not TASKS.exists(), reason="threads are listed by Linux's /proc only")
def test_iree_starts_as_many_workers_as_asked_whatever_ran_before() -> None:
    require("iree")
    for threads in (4, 3):  # which nothing else here asks for, so that none are there yet
        before = iree_workers()
        open_device(threads)
        assert new_workers(before, threads) == threads
    before = iree_workers()
    case, hits = make_case(PRODUCT), iree._compiled.cache_info().hits
    made = [MAKERS["iree"](case.problem, case.operands, 3) for _ in range(2)][1]
    assert iree._compiled.cache_info().hits - hits >= len(made), "compiled once for all copies"
    assert [case.why_wrong(way) for way in made] == [None] * len(made)
    assert iree_workers() == before


def test_more_threads_than_openblas_takes_are_an_absence() -> None:
    case = make_case(PRODUCT)
    with pytest.raises(PeerAbsentError, match="takes 64 threads, not 65"):
        MAKERS["openblas"](case.problem, case.operands, 65)


SMALL, IMAGE = "matmul:m=37,n=65,k=29,dtype=", "conv2d:n=1,h=9,w=11,ci=16,co=24,kh=3,kw=3,pad=1"
PROBLEMS = [
    SMALL + "f32,bias,epilogue=relu", SMALL + "bf16,weights=constant,transpose_b",
    SMALL + "i8,transpose_a,bias", SMALL + "f64,init=accumulate,epilogue=relu",
    "matmul:m=1,n=300,k=129,dtype=f32,weights=constant",
    "matmul:batch=3,m=9,n=21,k=17,dtype=f32,transpose_b",
    f"{IMAGE},dtype=f32,layout=nchw_fchw,bias,epilogue=relu,weights=constant",
    "conv2d:n=1,h=9,w=7,ci=16,co=16,kh=3,kw=3,groups=16,pad=1,dtype=f32,bias,epilogue=relu6",
]  # fmt: skip


def maker(case: Case, threads: int = 1, winograd: int = 0) -> Maker:
    """A peer with the schedule that the model likes best, or the best of Winograd's."""
    target = resolve("host" if threads == 1 else f"cpu:host,threads={threads}")
    space = Space(case.problem, target)
    liked = map(space.schedule, prior_points(AnalyticalModel.shipped(space), 40))
    sizes = ((one, one.algorithm.size if one.algorithm else 0) for one in liked)
    return Maker(next(one for one, size in sizes if size >= winograd), target)


@pytest.mark.full
@pytest.mark.parametrize(("text", "threads"), [
    *product(PROBLEMS, [1]), *product(PROBLEMS[:2] + PROBLEMS[6:7], [2])
])  # fmt: skip
def test_iree_computes_rightly_with_our_kernel(text: str, threads: int) -> None:
    require("iree+tilewise")
    case = make_case(text)
    (way,) = screened(maker(case, threads).variants, replace(case.bench, threads=threads))
    assert way.variant.peer in OWN
    assert way.error <= way.tolerance


def test_weights_for_winograd_are_packed_once() -> None:
    """They grow; were they packed in each run, a change of theirs would be seen."""
    require("iree+tilewise")
    case = make_case(f"{IMAGE},dtype=f32,weights=constant")
    (variant,) = maker(case, winograd=2).variants(case.problem, case.operands, 1)
    variant.run(1)
    before = variant.result().copy()
    case.operands["B"][...] = 0
    variant.run(1)
    np.testing.assert_array_equal(variant.result(), before)


def test_a_problem_that_no_pattern_matches_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    require("iree+tilewise")
    case, other = make_case(SMALL + "f32"), make_case("matmul:m=37,n=65,k=28,dtype=f32")
    made = maker(other)

    def of_another(_: object, target: Target) -> str:
        return library_text([LibraryEntry(other.problem, made.schedule)], target)

    monkeypatch.setattr(iree, "library_text", of_another)
    with pytest.raises(PeerAbsentError, match="no pattern"):
        screened(made.variants, case.bench)
