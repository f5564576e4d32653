"""Random generics and problems: each is recognised, and computes what its problem does."""

import random
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tilewise.kernels.errors import ProblemError
from tilewise.kernels.mlir.frontend.graph import Arrangement, Occurrence
from tilewise.kernels.mlir.frontend.read import read_module
from tilewise.kernels.mlir.iree.module_text import module_text
from tilewise.kernels.oracle.operands import Array, to_bf16
from tilewise.kernels.oracle.reference import reference
from tilewise.kernels.problem import DTYPES, Problem, parse_problem

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")


Term = tuple[int, int]
Map = tuple[tuple[Term, ...], ...]
WIDENED = {"f32": "f32", "f64": "f64", "i32": "i32", "i8": "i32", "bf16": "f32", "f16": "f32"}
TRAPS = ("none", "subtracts", "squares", "diagonal", "sums_one", "repeats", "forgets")


@dataclass(frozen=True)
class Generic:
    """An op: loop lengths, what it reads where, and how its body is spelled.

    Attributes:
        maps: of A, B and C.
        trap: what makes it no problem; `none` for a problem.
        accumulates: whether C is an argument instead of zeros.
        order: in which the body writes its operands; 3: contractions are `linalg.contract`.
    """

    extents: tuple[int, ...]
    maps: tuple[Map, Map, Map]
    dtype: str = "f32"
    trap: str = "none"
    accumulates: bool = False
    order: int = 0

    @property
    def operand_shapes(self) -> list[tuple[int, ...]]:
        """Of A, B and C, as small as the maps let them be."""
        return [
            tuple(1 + sum(step * (self.extents[dim] - 1) for dim, step in axis) for axis in one)
            for one in self.maps
        ]

    @property
    def types(self) -> tuple[str, str, str]:
        """The tensor types of A, B and C."""
        a, b, c = self.operand_shapes
        return tensor(a, self.dtype), tensor(b, self.dtype), tensor(c, WIDENED[self.dtype])

    def text(self, name: str) -> str:
        """A function of it."""
        a, b, c = self.types
        start = [] if self.accumulates else self.zeros("%start")
        return "\n".join([
            f"func.func @{name}(%a: {a}, %b: {b}, %c: {c}) -> {c} {{", *start,
            *self.lines("%a", "%b", "%c" if self.accumulates else "%start"), f"  return %r : {c}",
            "}",
        ])  # fmt: skip

    def zeros(self, name: str) -> list[str]:
        """Lines that make a C of zeros."""
        wide, c = WIDENED[self.dtype], self.types[2]
        return [
            f"  %zero = arith.constant {'0.0' if wide.startswith('f') else '0'} : {wide}",
            f"  %empty = tensor.empty() : {c}",
            f"  {name} = linalg.fill ins(%zero : {wide}) outs(%empty : {c}) -> {c}",
        ]

    def lines(self, first: str, second: str, start: str) -> list[str]:
        """The op on values of these names; it makes `%r`."""
        a, b, c = self.types
        written = {dim for axis in self.maps[2] for dim, _ in axis}
        iterators = ", ".join(
            '"parallel"' if dim in written else '"reduction"' for dim in range(len(self.extents))
        )
        maps = ", ".join(self._map(one) for one in self.maps)
        axes = [axis for one in self.maps for axis in one]
        if self.order == 3 and self.trap == "none" and all(len(axis) == 1 for axis in axes):
            values = f"ins({first}, {second} : {a}, {b}) outs({start} : {c}) -> {c}"
            return [f"  %r = linalg.contract indexing_maps = [{maps}] {values}"]
        return [
            f"  %r = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{iterators}]}} "
            f"ins({first}, {second} : {a}, {b}) outs({start} : {c}) {{",
            f"  ^bb0(%x: {self.dtype}, %y: {self.dtype}, %s: {WIDENED[self.dtype]}):",
            *(f"    {line}" for line in self._body()),
            f"  }} -> {c}",
        ]

    def _map(self, axes: Map) -> str:
        dims = ", ".join(f"d{dim}" for dim in range(len(self.extents)))
        read = ", ".join(
            " + ".join(f"d{dim} * {step}" for dim, step in axis) or "0" for axis in axes
        )
        return f"affine_map<({dims}) -> ({read})>"

    def _body(self) -> list[str]:
        wide = WIDENED[self.dtype]
        kind = "f" if wide.startswith("f") else "i"
        x, y, lines = "%x", "%y", []
        if wide != self.dtype:
            extend = "arith.extf" if kind == "f" else "arith.extsi"
            lines = [f"%w{v} = {extend} %{v} : {self.dtype} to {wide}" for v in "xy"]
            x, y = "%wx", "%wy"
        if self.trap == "squares":
            y = x
        factors = (x, y) if self.order & 1 else (y, x)
        terms = ("%s", "%p") if self.order & 2 else ("%p", "%s")
        last = "sub" if self.trap == "subtracts" else "add"
        return [
            *lines,
            f"%p = arith.mul{kind} {factors[0]}, {factors[1]} : {wide}",
            f"%t = arith.{last}{kind} {terms[0]}, {terms[1]} : {wide}",
            f"linalg.yield {'%p' if self.trap == 'forgets' else '%t'} : {wide}",
        ]

    def computed(self, a: Array, b: Array, c: Array) -> Array:
        """C after the loops, in the type of `c`."""
        at = np.indices(self.extents) if self.extents else np.zeros((0,))
        factors = [_read(array, axes, at) for array, axes in zip((a, b), self.maps, strict=False)]
        out = c.copy()
        np.add.at(out, _index(self.maps[2], at), factors[0] * factors[1])
        return out


def tensor(shape: Iterable[int], element: str) -> str:
    """The type of a tensor."""
    return f"tensor<{''.join(f'{size}x' for size in shape)}{element}>"


def _index(axes: Map, at: Any) -> tuple[Any, ...]:
    zero = np.zeros(at.shape[1:], int)
    return tuple(sum((step * at[dim] for dim, step in axis), zero) for axis in axes)


def _read(array: Array, axes: Map, at: Any) -> Array:
    found: Array = array[_index(axes, at)]
    return found


def random_generic(rng: random.Random) -> Generic:
    """A contraction or a convolution, permuted at random, or what looks like one."""
    return random_convolution(rng) if rng.random() < 0.35 else random_contraction(rng)


def random_contraction(rng: random.Random) -> Generic:
    counts = {"b": rng.choice((0, 0, 1, 2)), "m": rng.choice((0, 1, 1, 2)),
              "n": rng.choice((0, 1, 1, 2)), "k": rng.choice((1, 1, 2))}  # fmt: skip
    roles = [role for role, count in counts.items() for _ in range(count)]
    rng.shuffle(roles)
    extents = [rng.choice((1, 2, 3, 4, 5)) for _ in roles]
    trap = rng.choice(TRAPS) if rng.random() < 0.3 else "none"
    dtype = rng.choice(tuple(WIDENED))
    reads = [[i for i, role in enumerate(roles) if role in of] for of in ("bmk", "bkn", "bmn")]
    if not reads[2] and trap != "repeats":
        trap = "number"
    if trap in ("sums_one", "repeats"):
        roles, extents = [*roles, "x"], [*extents, 3]
        reads[0 if trap == "sums_one" else 2].append(len(roles) - 1)
    for one in reads:
        rng.shuffle(one)
    maps = [tuple(((dim, 1),) for dim in one) for one in reads]
    if trap == "diagonal":
        long = [dim for dim in reads[0] if extents[dim] > 1]
        if long:
            maps[0] = (*maps[0], ((long[0], 1),))
        else:
            trap = "none"
    return Generic(tuple(extents), (maps[0], maps[1], maps[2]), dtype, trap,
                   rng.random() < 0.3, rng.randrange(4))  # fmt: skip


def random_convolution(rng: random.Random) -> Generic:
    """Dims: n, oh, ow, g, f, kh, kw, c."""
    extents = [rng.choice((1, 2)), rng.choice((1, 3, 4)), rng.choice((1, 3, 5)),
               rng.choice((1, 1, 2)), rng.choice((1, 2, 3)), rng.choice((1, 2, 3)),
               rng.choice((1, 3)), rng.choice((1, 2, 3))]  # fmt: skip
    down, across = (rng.choice(((1, 1), (2, 2), (1, 2), (3, 1))) for _ in range(2))
    trap = rng.choice(("none", "none", "none", "subtracts"))
    image = [((0, 1),), ((1, down[0]), (5, across[0])), ((2, down[1]), (6, across[1])), ((3, 1),),
             ((7, 1),)]  # fmt: skip
    filters = [((5, 1),), ((6, 1),), ((3, 1),), ((7, 1),), ((4, 1),)]
    result = [((0, 1),), ((1, 1),), ((2, 1),), ((3, 1),), ((4, 1),)]
    for one in (image, filters, result):
        rng.shuffle(one)
    return Generic(tuple(extents), (tuple(image), tuple(filters), tuple(result)),
                   rng.choice(tuple(WIDENED)), trap, False, rng.randrange(4))  # fmt: skip


COUNT = 200
STORED = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "i8": np.int8, "i32": np.int32}


def arranged(value: Array, how: Arrangement) -> Array:
    return value.transpose(how.axes).reshape(how.shape)


def stored(values: Array, dtype: str) -> Array:
    """Small whole numbers in a dtype, as the reference takes them."""
    if dtype == "bf16":
        return to_bf16(values.astype(np.float32))
    return values.astype(STORED[dtype])


def check(case: Generic, found: Occurrence, rng: np.random.Generator) -> None:
    """Compare the op's result with that of its problem on operands that were rearranged."""
    a, b, c = (rng.integers(-4, 5, shape).astype(np.int64) for shape in case.operand_shapes)
    expected = case.computed(a, b, c if case.accumulates else np.zeros_like(c))
    problem = parse_problem(found.problem)
    assert problem.element.name == case.dtype
    assert problem.accumulates == case.accumulates
    first, second = (b, a) if found.is_swapped else (a, b)
    operands = {
        "A": stored(arranged(first, found.a), case.dtype),
        "B": stored(arranged(second, found.b), case.dtype),
        "C": stored(arranged(c, found.c), WIDENED[case.dtype]),
    }
    value = reference(problem, operands).value
    np.testing.assert_array_equal(value, arranged(expected, found.c), err_msg=found.problem)


def test_random_generics_are_recognised_rightly_or_refused() -> None:
    rng = random.Random(25)
    cases = {f"f{i}": random_generic(rng) for i in range(COUNT)}
    imported = read_module("\n".join(case.text(name) for name, case in cases.items()).encode())
    found = {one.where.split()[0].removeprefix("@"): one for one in imported.occurrences}
    refused = {one.where.split()[0].removeprefix("@") for one in imported.skipped}
    numbers = np.random.default_rng(25)
    for name, case in cases.items():
        if case.trap == "none":
            assert name in found, (name, case, [s for s in imported.skipped if name in s.where])
            check(case, found[name], numbers)
        else:
            assert name not in found, (name, case, found.get(name))
            assert name in refused, (name, case)
    assert len(found) > COUNT / 2
    assert len(refused) > COUNT / 10
    assert any(not one.is_plain for one in found.values())
    assert any(one.is_swapped for one in found.values())


PROBLEM_SIZES = (2, 3, 5, 7, 12)
PROBLEM_COUNT = 150


def random_problem(rng: random.Random) -> Problem:
    """Any key at any value; sizes of 1 alone are left out, since they can be read in many ways."""
    flags: dict[str, object] = {
        # Modules widen unsigned bytes ahead, which is read back of matmuls alone.
        "dtype": rng.choice([name for name in DTYPES if name != "u8"]),
        "bias": rng.random() < 0.5,
        "epilogue": rng.choice(("none", "relu")),
        "weights": rng.choice(("variable", "constant")),
    }
    if rng.random() < 0.4:
        sizes: dict[str, object] = {name: rng.choice(PROBLEM_SIZES) for name in "mnk"}
        return parse_problem(
            {"op": "matmul", "batch": rng.choice((1, 3)), **sizes, **flags,
             "transpose_a": rng.random() < 0.3, "transpose_b": rng.random() < 0.3,
             "init": rng.choice(("zero", "accumulate"))}
        )  # fmt: skip
    groups = rng.choice((1, 1, 2, 4))
    ci, co = groups * rng.choice((1, 2, 3)), groups * rng.choice((1, 2, 5))
    if groups == 1:
        ci, co = max(ci, 2), max(co, 2)
    return parse_problem(
        {"op": "conv2d", "n": rng.choice((1, 2)), "h": rng.choice((7, 9)), "w": rng.choice((8, 11)),
         "ci": ci, "co": co, "kh": rng.choice((1, 2, 3)), "kw": rng.choice((1, 3)),
         "stride": rng.choice((1, 2)), "dilation": rng.choice((1, 2)), "pad": rng.choice((0, 1, 2)),
         "groups": groups, "layout": rng.choice(("nhwc_hwcf", "nchw_fchw")), **flags}
    )  # fmt: skip


def expected(problem: Problem) -> str:
    """The problem as it can be read: a dilation of a window of one is not seen."""
    keys = problem.to_json()
    if keys["op"] == "conv2d" and keys["kh"] == keys["kw"] == 1:
        keys.pop("dilation", None)
    return parse_problem(keys).canonical


def test_problems_are_read_back_from_their_modules() -> None:
    rng = random.Random(7)
    one_pixel = "conv2d:n=1,h=2,w=2,ci=4,co=8,kh=3,kw=3,stride=2,pad=1,dtype=f32"
    problems = [parse_problem(one_pixel)]
    while len(problems) < PROBLEM_COUNT:
        try:
            problems.append(random_problem(rng))
        except ProblemError:  # a window larger than its image
            continue
    texts = [
        re.sub("@(kernel|weights)", rf"@\g<1>{i}", module_text(problem))
        for i, problem in enumerate(problems)
    ]
    imported = read_module("\n".join(texts).encode())
    assert not imported.skipped
    read = {one.where.split()[0]: one for one in imported.occurrences}
    for i, problem in enumerate(problems):
        found = read[f"@kernel{i}"]
        assert found.problem == expected(problem), texts[i]
        assert found.is_plain
    assert len(read) == PROBLEM_COUNT
