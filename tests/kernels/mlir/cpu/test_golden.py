"""Scripts as users get them. A change here is a change of what is served."""

from collections.abc import Callable

import pytest

from tests.kernels.mlir.build import IMAGE, PACKED, PIXELS, schedule
from tilewise.kernels.mlir.cpu.script import emit_script
from tilewise.kernels.mlir.transform.module import with_payload
from tilewise.kernels.nest import Fetch
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Prefetch, Schedule, loop_nest

MATMUL = "matmul:m=64,n=96,k=48"
SPLIT = ("pack operand=B", "register rows=4 cols=3 outer=cols", "split dim=k lanes=16",
         "unroll factor=2")  # fmt: skip
SERVED = {
    "conv_strided": (
        "conv2d:n=2,h=9,w=11,ci=8,co=19,kh=3,kw=3,stride=2,pad=1,dtype=f32,bias,epilogue=relu",
        IMAGE,
    ),
    "matmul_transposed": (f"{MATMUL},dtype=f32,transpose_a,transpose_b", PACKED),
    "matmul_widened": (f"{MATMUL},dtype=i8,weights=constant", PACKED),
    "matmul_split": ("matmul:m=64,n=3,k=100,dtype=f32,bias", SPLIT),
    "conv_grouped": (
        "conv2d:n=1,h=9,w=11,ci=16,co=32,kh=3,kw=3,groups=2,dtype=bf16",
        ("tile dim=g size=1", *IMAGE),
    ),
    "conv_planes": (
        "conv2d:n=2,h=9,w=11,ci=8,co=16,kh=3,kw=3,pad=1,layout=nchw_fchw,dtype=f64", PIXELS
    ),
}  # fmt: skip


def test_packed_matmul(golden: Callable[[str, str], None]) -> None:
    steps = schedule(*PACKED)
    script = emit_script(parse_problem(f"{MATMUL},dtype=f32"), steps)
    golden("matmul_packed.mlir", script)
    places = [script.index(f"// {step}\n") for step in steps.steps]
    assert places == sorted(places), "every step is a comment"


@pytest.mark.parametrize("name", SERVED)
def test_script_with_its_payload(name: str, golden: Callable[[str, str], None]) -> None:
    text, steps = SERVED[name]
    problem = parse_problem(text)
    golden(f"{name}.mlir", with_payload(problem, emit_script(problem, schedule(*steps))))


def test_every_node_is_a_comment_of_the_script() -> None:
    """In order; prefetches and stores past the caches are left to the hardware."""
    problem, steps = parse_problem(f"{MATMUL},dtype=f32"), schedule(*PACKED)
    steps = Schedule((*steps.steps[:3], Prefetch("B"), *steps.steps[3:]))
    script = emit_script(problem, steps).partition("{\n")[2]
    lines = iter(script.splitlines())
    nodes = [here.node for here in loop_nest(problem, steps).visit()]
    for node in nodes[:-1]:
        end = ": left to the hardware here" if isinstance(node, Fetch) else ""
        assert any(line.strip() == f"// {node}{end}" for line in lines), node
