"""Kernels called from JAX, against JAX's own ops and NumPy in f64."""

import os
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilewise.jax as door
from tests.cases import some
from tests.tilewise.stored_kernels import Stored, lines
from tilewise.errors import BadInputError
from tilewise.jax import calls
from tilewise.kernels.oracle.reference import reference
from tilewise.kernels.problem import parse_problem
from tilewise.linked import kernels, verdicts

MATMUL = "matmul:m=6,n=32,k=20,dtype="
CONV = "conv2d:n=2,h=7,w=6,ci=16,co=16,kh=3,kw=3,pad=1,dtype="


@pytest.fixture(autouse=True)
def fresh() -> None:
    calls._load.cache_clear()
    kernels.warn_once.cache_clear()


def arrays(problem: str) -> dict[str, jax.Array]:
    """Return random operands of a problem, for `load(problem)(**operands)`."""
    given, random = parse_problem(problem), np.random.default_rng(7)
    operands = {name: calls._struct(given, name) for name in calls._names(given)}
    made = {name: jnp.asarray(random.standard_normal(of.shape), of.dtype)
            for name, of in operands.items()}  # fmt: skip
    return {name.lower() if name in "AB" else name: array for name, array in made.items()}


@pytest.mark.parametrize(("problem", "threads"), some(product([
    f"{MATMUL}f32,bias,epilogue=relu,weights=constant",
    f"{MATMUL}f32,transpose_b,add,epilogue=silu",
    f"{MATMUL}bf16,out=bf16,bias,epilogue=gelu,weights=constant",
    "matmul:batch=3,m=6,n=32,k=20,dtype=f32,init=accumulate",
    f"{CONV}f32,stride=2,init=accumulate,bias,epilogue=relu6,weights=constant",
    f"{CONV}bf16,out=bf16,groups=16,dilation=1x2,bias",
], [1, 2]), of=5, all_of=3))  # fmt: skip
def test_a_kernel_and_jax_compute_the_same(stored: Stored, problem: str, threads: int) -> None:
    given, wanted = arrays(problem), parse_problem(problem)
    call = door.load(problem, threads=threads)
    assert call.kernel is not None and (call.kernel.parts > 1) == (threads > 1)
    wide = {name.upper() if name in "ab" else name: np.asarray(value, np.float32)
            for name, value in given.items()}  # fmt: skip
    if wanted.accumulates:
        wide["C"] = wide.pop("add")
    exact = reference(parse_problem({**wanted.to_json(), "dtype": "f32", "out": ""}), wide).value
    own = door.Call(wanted)
    weights = call.prepare(given["b"])
    for found in (
        call(**given),
        jax.jit(lambda a: call(**given | {"a": a}))(given["a"]),
        jax.jit(call)(**given | {"b": weights}),
        own(**given),
    ):
        error = np.linalg.norm(np.asarray(found, np.float64) - exact)
        assert error <= verdicts.TOLERANCES[wanted.dtype] * np.linalg.norm(exact) != 0
    assert (weights.dtype == jnp.uint8) == (wanted.weights == "constant")


def test_kernels_tuned_for_cold_caches_come_first(stored: Stored, cache) -> None:
    both, hot_alone = (f"matmul:m={m},n=16,k=24,dtype=f32,weights=constant" for m in (5, 7))
    stored.cold = {both}
    assert door.load(both).kernel is not None and door.load(hot_alone).kernel is not None
    assert stored.modes == ["cold", "hot"]
    known, processors = (cache / "verdicts.json").read_text(), len(os.sched_getaffinity(0))
    assert known.count(f'jax={jax.__version__},threads={processors}"') == 2


def test_matmul_takes_batches_closed_over_weights_and_gradients(stored: Stored) -> None:
    given = arrays(f"{MATMUL}f32,bias")
    b, bias = given["b"], given["bias"]
    images = jnp.stack([given["a"], 2 * given["a"]])
    expected = images @ b + bias
    for function in (
        lambda x: door.matmul(x, b, bias),
        jax.vmap(lambda x: door.matmul(x, b, bias)),
        lambda x: door.matmul(x, jnp.stack([b, b])) + bias,
        lambda x: jnp.concatenate([door.matmul(one[None], b[None], bias) for one in x]),
    ):
        for run in (function, jax.jit(function)):
            assert jnp.allclose(run(images), expected, atol=1e-4)
    assert len(stored.made) == len(set(stored.made)), "one kernel a problem"
    of_both = jax.grad(lambda x, w: door.matmul(x, w, bias).sum(), (0, 1))(images, b)
    own = jax.grad(lambda x, w: (x @ w + bias).sum(), (0, 1))(images, b)
    of_images = jax.grad(lambda x: door.matmul(x, b, bias).sum())(images)
    for found, wanted in zip((*of_both, of_images), (*own, own[0]), strict=True):
        assert jnp.allclose(found, wanted, atol=1e-4)


def test_weights_are_packed_once(stored: Stored) -> None:
    call = door.load(f"{MATMUL}f32,weights=constant", threads=1)
    given = arrays(f"{MATMUL}f32,weights=constant")
    assert call.prepare(given["b"]) is call.prepare(given["b"])
    assert jnp.array_equal(call.prepare(given["b"]), call.prepare(np.float64(given["b"])))
    del given
    assert not call._prepared, "packed weights live as long as the weights"


@pytest.mark.parametrize("why", ["absent", "slower", "wrong", "traced", "broken"])
def test_jax_computes_where_no_kernel_does(stored, why: str, monkeypatch, caplog) -> None:
    problem = f"{MATMUL}f32,weights=constant"
    stored.problems = set() if why == "absent" else None
    if why == "slower":
        monkeypatch.setattr(verdicts, "in_turns", lambda *_, **__: (2e-6, 1e-6))
    if why == "wrong":
        problem = problem.replace("n=32", "n=33")
        stored.computes = lambda problem: problem.replace(",w", ",epilogue=relu,w")
    if why == "broken":
        monkeypatch.setattr(stored, "look_up", None)
    given, call = arrays(problem), door.load(problem, threads=1)
    assert (call.kernel is None) == (why != "traced")
    for run in (call, jax.jit(call)):
        assert jnp.allclose(run(**given), given["a"] @ given["b"], atol=1e-4)
    assert len(lines(caplog)) == (why in ("traced", "broken"))


def test_what_no_call_can_compute_is_refused(stored: Stored) -> None:
    for problem, options, text in (
        ("matmul:m=4,n=4,k=4,dtype=i8", {}, "not a matmul or a conv2d"),
        (f"{CONV}f32,layout=nchw_fchw", {}, "not a matmul or a conv2d"),
        (f"{MATMUL}f64", {}, "jax_enable_x64 is off"),
        (f"{MATMUL}f32", {"accuracy": "strict"}, "options: accuracy is not one of store"),
        (f"{MATMUL}f32", {"trials": -1}, "options: trials=-1 is not a number from 0 on"),
    ):
        with pytest.raises(BadInputError, match=text):
            door.load(problem, **options)
    call, given = door.load(f"{MATMUL}f32,bias", threads=1), arrays(f"{MATMUL}f32,bias")
    for change, text in (
        ({"bias": None}, r"operands are A float32\[6, 20\], B float32\[20, 32\] instead of A"),
        ({"add": given["a"]}, r"bias float32\[32\], add float32\[6, 20\] instead of A"),
        ({"a": given["a"][1:]}, r"A float32\[5, 20\], .* instead of A float32\[6, 20\]"),
        ({"a": given["a"].astype(jnp.bfloat16)}, r"A bfloat16"),
        ({"b": jnp.zeros(7, jnp.uint8)}, r"B uint8\[7\]"),
    ):
        with pytest.raises(BadInputError, match=text):
            call(**given | change)
