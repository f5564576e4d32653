"""Scripts as users get them. A change here is a change of what is served."""

from collections.abc import Callable

from tests.kernels.mlir.build import IMAGE, PACKED, PIXELS, schedule
from tilewise.kernels.mlir.cpu.script import emit_script
from tilewise.kernels.mlir.transform.module import with_payload
from tilewise.kernels.nest import Fetch
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Prefetch, Schedule, loop_nest


def test_packed_matmul(golden: Callable[[str, str], None]) -> None:
    problem = parse_problem("matmul:m=64,n=96,k=48,dtype=f32")
    golden("matmul_packed.mlir", emit_script(problem, schedule(*PACKED)))


def test_strided_convolution_with_its_payload(golden: Callable[[str, str], None]) -> None:
    problem = parse_problem(
        "conv2d:n=2,h=9,w=11,ci=8,co=19,kh=3,kw=3,stride=2,pad=1,dtype=f32,bias,epilogue=relu"
    )
    golden("conv_strided.mlir", with_payload(problem, emit_script(problem, schedule(*IMAGE))))


def test_transposed_matmul(golden: Callable[[str, str], None]) -> None:
    problem = parse_problem("matmul:m=64,n=96,k=48,dtype=f32,transpose_a,transpose_b")
    golden("matmul_transposed.mlir", with_payload(problem, emit_script(problem, schedule(*PACKED))))


def test_widened_matmul_with_constant_weights(golden: Callable[[str, str], None]) -> None:
    problem = parse_problem("matmul:m=64,n=96,k=48,dtype=i8,weights=constant")
    golden("matmul_widened.mlir", with_payload(problem, emit_script(problem, schedule(*PACKED))))


def test_split_reduction(golden: Callable[[str, str], None]) -> None:
    problem = parse_problem("matmul:m=64,n=3,k=100,dtype=f32,bias")
    steps = schedule(
        "pack operand=B", "register rows=4 cols=3 outer=cols", "split dim=k lanes=16",
        "unroll factor=2",
    )  # fmt: skip
    golden("matmul_split.mlir", with_payload(problem, emit_script(problem, steps)))


def test_grouped_convolution(golden: Callable[[str, str], None]) -> None:
    problem = parse_problem("conv2d:n=1,h=9,w=11,ci=16,co=32,kh=3,kw=3,groups=2,dtype=bf16")
    steps = schedule("tile dim=g size=1", *IMAGE)
    golden("conv_grouped.mlir", with_payload(problem, emit_script(problem, steps)))


def test_convolution_of_planes(golden: Callable[[str, str], None]) -> None:
    problem = parse_problem(
        "conv2d:n=2,h=9,w=11,ci=8,co=16,kh=3,kw=3,pad=1,layout=nchw_fchw,dtype=f64"
    )
    golden("conv_planes.mlir", with_payload(problem, emit_script(problem, schedule(*PIXELS))))


def test_every_step_is_a_comment_of_the_script() -> None:
    steps = schedule(*PACKED)
    script = emit_script(parse_problem("matmul:m=64,n=96,k=48,dtype=f32"), steps)
    places = [script.index(f"// {step}\n") for step in steps.steps]
    assert places == sorted(places)


def test_every_node_is_a_comment_of_the_script() -> None:
    """In order; prefetches and stores past the caches are left to the hardware."""
    problem, steps = parse_problem("matmul:m=64,n=96,k=48,dtype=f32"), schedule(*PACKED)
    steps = Schedule((*steps.steps[:3], Prefetch("B"), *steps.steps[3:]))
    script = emit_script(problem, steps).partition("{\n")[2]
    lines = iter(script.splitlines())
    nodes = [here.node for here in loop_nest(problem, steps).visit()]
    for node in nodes[:-1]:
        end = ": left to the hardware here" if isinstance(node, Fetch) else ""
        assert any(line.strip() == f"// {node}{end}" for line in lines), node
