"""What drivers do when Numba compiles them, and when they are compiled without it."""

import ctypes
import functools
import random
from collections.abc import Callable

import pytest
from llvmlite import ir

from tilewise.kernels.errors import LoweringError
from tilewise.kernels.native.jit.loading import Loaded
from tilewise.kernels.native.jit.object_code import compile_module
from tilewise.kernels.native.language.compiler import emit_driver

HEADER = "from numba import njit\n\n@njit\n"


def without(text: str, arguments: int) -> Callable[..., int]:
    """The last function of `text`, compiled here; it lives as long as what is given."""
    module = ir.Module("driver")
    function = emit_driver(module, text)[-1]
    made = compile_module(module, [function], "level 1 by function")
    owner = Loaded(made)
    kind = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * arguments)
    return functools.partial(called, kind(owner.addresses[0]), owner)


def called(function: Callable[..., int], _owner: Loaded, *given: int) -> int:
    return function(*given)


EXPRESSIONS = (
    "x // y", "x % y", "-x + y * 3 - z", "min(x, y, z)", "max(x, y)", "x | 7",
    "x if y < z else z", "(x < y) + (y <= z) * 2 + (x == z) * 4 + (x != y) * 8",
    "x > y or y >= z", "x < y and y < z", "not x", "not (x < y or z)",
    "1 if x and y or not z else 2",
)  # fmt: skip


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_is_what_python_makes_of_it(expression: str) -> None:
    text = f"def f(x, y, z):\n    return {expression}\n"
    meant: dict[str, Callable[..., int]] = {}
    exec(text, meant)
    # `and` and `or` give a truth value here, as they do in a condition.
    truth = any(word in expression for word in ("or", "and", "not")) and " if " not in expression
    found = without(HEADER + text, 3)
    rng = random.Random(1)
    for _ in range(200):
        x, z = rng.randint(-9, 9), rng.randint(-9, 9)
        y = rng.choice([-7, -3, -1, 1, 2, 5, 8])
        wanted = meant["f"](x, y, z)
        assert found(x, y, z) == (int(bool(wanted)) if truth else wanted), (x, y, z)


STATEMENTS = (
    "for i in range(x):\n    total += i * y",
    "for i in range(y, x):\n    if i % 3 == 0:\n        continue\n    total += i",
    "for i in range(y, x, 4):\n    i = i + 100\n    total += i",
    "while x > y:\n    x -= 3\n    if x % 2:\n        continue\n    total += x",
    "for i in range(x):\n    for j in range(i):\n        total += j\n        if j == y:\n"
    "            return total",
    "if x < y:\n    total = 1\nelif x == y:\n    total = 2\n"
    "else:\n    total, x = x, y\n    total -= x",
)


@pytest.mark.parametrize("body", STATEMENTS)
def test_statements_do_what_they_do_in_python(body: str) -> None:
    lines = ["total = 0", *body.splitlines(), "return total * 1000 + x"]
    text = "def f(x, y):\n" + "".join(f"    {line}\n" for line in lines)
    meant: dict[str, Callable[..., int]] = {}
    exec(text, meant)
    found = without(HEADER + text, 2)
    for x in range(-2, 30, 3):
        for y in range(-1, 9):
            assert found(x, y) == meant["f"](x, y), (x, y)


@pytest.mark.parametrize(
    "body", ["return [x]", "return x / 2", "for i in (1, 2): pass", "return abs(x)", "del x"]
)
def test_what_is_not_of_the_language_is_named(body: str) -> None:
    with pytest.raises(LoweringError, match="language"):
        emit_driver(ir.Module("driver"), f"{HEADER}def f(x):\n    {body}\n")


def test_a_name_that_has_no_value_where_it_is_used_is_refused() -> None:
    text = f"{HEADER}def f(x):\n    for i in range(x):\n        y = i\n    return y\n"
    with pytest.raises(LoweringError, match="y is not of the language"):
        without(text, 1)
