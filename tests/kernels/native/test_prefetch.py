"""Which rows of B's next block the micro-kernels are asked to fetch, by the printed driver."""

import ast
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import pytest
from llvmlite import ir

from tilewise.kernels.native.ir.vectors import LINE_BYTES as LINE
from tilewise.kernels.native.microkernels.outer_product_code import (
    OuterProductSpec,
    emit_outer_product,
)
from tilewise.kernels.native.plan import plan
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import (
    Pack,
    Prefetch,
    Register,
    Schedule,
    Step,
    Stream,
    Tile,
)
from tilewise.kernels.steps.prefetch import PANEL_DISTANCE
from tilewise.kernels.target import Target

B = 1 << 40


class OfBlocks(ast.NodeTransformer):
    """A driver that says when it comes to another block of B."""

    def visit_Assign(self, node: ast.Assign) -> list[ast.stmt]:
        begins = ast.unparse(node).startswith("fetching = min")
        return [node, *(ast.parse("begin_block()").body if begins else [])]


def asked(
    text: str, steps: tuple[Step, ...], target: Target, fetching: list[bool] | None = None
) -> list[list[int]]:
    """For each block of B the addresses that are fetched while it is computed on, sorted.

    The driver runs in Python, on a micro-kernel that does nothing but note what it is given; in
    `fetching`, whether a call fetches.
    """
    planned = plan(parse_problem(text), Schedule(steps), target)
    blocks: list[list[int]] = []
    calls = [] if fetching is None else fetching

    def call_address(_function: int, *given: int) -> None:
        *_, depth, _flags, _rows, _cols, _beside, ahead, step, _zero = given
        tap_rows, tap_cols = given[8:10]
        if step:
            iterations = tap_rows * tap_cols * (depth // planned.spec.unroll)
            lines = range(0, LINE * planned.spec.prefetched, LINE)
            blocks[-1].extend(ahead + i * step + at for i in range(iterations) for at in lines)
        calls.append(bool(step))

    names: dict[str, Callable[..., object]] = {
        "njit": lambda *_, **__: lambda function: function,
        "word": lambda given, index: given[index],
        "add_word": lambda *_: None,
        "call_address": call_address,
        "pack_b": lambda *_: None,
        "begin_block": lambda: blocks.append([]),
    }
    driver = OfBlocks().visit(ast.parse(planned.source.text))
    driver.body = [node for node in driver.body if not isinstance(node, ast.ImportFrom)]
    exec(compile(ast.fix_missing_locations(driver), "driver", "exec"), names)
    sizes = dict.fromkeys(planned.source.parameters, 0) | planned.sizes | {"b": B}
    names["driver"]([sizes[name] for name in planned.source.parameters])
    return [sorted(block) for block in blocks]


def rows(first: int, count: int, row_bytes: int, col_bytes: int, panels: int) -> list[int]:
    """Addresses of the lines of a block's panels, from a byte of B on, sorted."""
    return sorted(
        B + first + panel * col_bytes + row * row_bytes + at
        for panel in range(panels)
        for row in range(count)
        for at in range(0, col_bytes, LINE)
    )


def test_of_a_streamed_reduction_the_next_chunk_is_fetched_then_the_next_columns(
    host: Target,
) -> None:
    cols = 2 * host.lanes("f32")
    n = 4 * cols
    steps = (Tile("n", 2 * cols), Stream("k", 24), Pack("B"), Prefetch("B"), Register(4, cols))
    found = asked(f"matmul:m=8,n={n},k=48,dtype=f32", steps, host)
    chunk, block = 24 * n * 4, 2 * cols * 4
    nexts = [chunk, block, block + chunk]
    expected = [rows(first, 24, n * 4, cols * 4, 2) for first in nexts]
    assert found[:-1] == expected
    assert len(found) == 4


def test_of_a_filter_every_tap_of_a_panel_is_fetched(host: Target) -> None:
    cols = host.lanes("f32")
    co = 4 * cols
    text = f"conv2d:n=1,h=6,w=10,ci=5,co={co},kh=3,kw=3,dtype=f32"
    steps = (Tile("co", 2 * cols), Pack("B"), Prefetch("B"), Tile("n", 1), Register(4, cols))
    found = asked(text, steps, host)
    assert len(found) == 2
    assert found[0] == rows(2 * cols * 4, 9 * 5, co * 4, cols * 4, 2)


@pytest.mark.parametrize("packs", [(Pack("B"),), ()])
@pytest.mark.parametrize("outer", ["cols", "rows"])
def test_the_last_calls_of_a_block_fetch_the_next(
    packs: tuple[Step, ...], outer: Literal["cols", "rows"], host: Target
) -> None:
    """Two of the twelve for each panel; those of the first block cannot know which are the last."""
    cols = 2 * host.lanes("f32")
    lines = -(-cols * 4 // LINE)
    steps = (Tile("n", 2 * cols), *packs, Prefetch("B"), Tile("m", 24), Register(4, cols, outer))
    fetching: list[bool] = []
    found = asked(f"matmul:m=48,n={6 * cols},k=10,dtype=f32", steps, host, fetching)
    blocks = [rows(2 * at * cols * 4, 10, 6 * cols * 4, cols * 4, 2) for at in (1, 2)]
    assert found[:2] == blocks
    late = [False] * (24 - 2 * lines) + [True] * 2 * lines
    assert fetching[:48] == [*late[::-1], *late]


def fetched_beside(text: str, steps: tuple[Step, ...], target: Target) -> list[list[int]]:
    """For each panel that was packed ahead, in turn, the lines from its own on that are fetched."""
    planned = plan(parse_problem(text), Schedule(steps), target)
    panels: list[tuple[int, list[int]]] = []

    def call_address(_function: int, *given: int) -> None:
        _a, b, *_, depth, _flags, _rows, _cols, _beside, ahead, step, _zero = given
        if not panels or panels[-1][0] != b:
            panels.append((b, []))
        lines = -(-planned.spec.vectors * planned.spec.lanes * 4 // LINE)
        for i in range(given[8] * given[9] * depth):
            panels[-1][1].extend(
                (ahead + i * step - line * (-step // lines) - b) // LINE for line in range(lines)
            )

    names: dict[str, Callable[..., object]] = {
        "njit": lambda *_, **__: lambda function: function,
        "word": lambda given, index: given[index],
        "add_word": lambda *_: None,
        "call_address": call_address,
        "pack_image": lambda *_: None,
    }
    driver = ast.parse(planned.source.text)
    driver.body = [node for node in driver.body if not isinstance(node, ast.ImportFrom)]
    exec(compile(ast.fix_missing_locations(driver), "driver", "exec"), names)
    sizes = dict.fromkeys(planned.source.parameters, 0) | planned.sizes | {"b_panels": B}
    names["driver"]([sizes[name] for name in planned.source.parameters])
    return [lines for _, lines in panels]


@pytest.mark.parametrize("vectors", [1, 3])
def test_the_calls_of_a_panel_share_the_lines_of_the_next(vectors: int, host: Target) -> None:
    cols = vectors * host.lanes("f32")
    text = f"conv2d:n=1,h=9,w=7,ci=64,co={4 * cols},kh=3,kw=1,dtype=f32,weights=constant"
    steps = (Pack("B"), Prefetch("B"), Tile("n", 1), Register(4, cols))
    first, *others = fetched_beside(text, steps, host)
    size = 3 * 64 * cols * 4 // LINE
    assert len(others) == 3
    for lines in others:
        assert set(range(size, 2 * size)) <= set(lines)
        assert size - 1 <= min(lines)
        assert max(lines) <= 2 * size + 3 * 64 // LINE + 1  # each step rounds up to a byte
    halves = others[0][: len(others[0]) // 2]
    assert max(halves) < 1.6 * size  # the first calls leave the other half to the last
    assert min(first) == PANEL_DISTANCE // LINE  # nothing tells yet how many calls there are


def test_a_panel_that_one_call_reads_is_fetched_as_it_goes_on(host: Target) -> None:
    cols = 2 * host.lanes("f32")
    text = f"matmul:m=4,n={3 * cols},k=40,dtype=f32,weights=constant"
    for lines in fetched_beside(text, (Pack("B"), Prefetch("B"), Register(4, cols)), host):
        ahead = PANEL_DISTANCE // LINE
        assert sorted(set(lines)) == list(range(ahead, ahead + 40 * cols * 4 // LINE))


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("weights", ["constant", "variable"])
def test_lines_come_to_the_cache_that_the_nest_says(
    weights: str, level: Literal[1, 2], host: Target
) -> None:
    cols = host.lanes("f32")
    text = f"matmul:m=4,n={4 * cols},k=8,dtype=f32,weights={weights}"
    steps = (Tile("n", cols), Pack("B"), Prefetch("B"), Register(4, cols))
    spec = plan(parse_problem(text), Schedule(steps), host).spec
    assert isinstance(spec, OuterProductSpec) and spec.fetch
    module = ir.Module()
    emit_outer_product(module, replace(spec, fetch=replace(spec.fetch, level=level)))
    locality = re.findall(r"@.?llvm.prefetch.*i32 0, i32 (\d), i32 1", str(module))
    assert set(locality) == {{1: "3", 2: "2"}[level]}
