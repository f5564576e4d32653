"""Scripts of every supported problem and range prove: applied, run, right, vectorised."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.cases import cases, some
from tests.kernels.mlir.build import IMAGE, IN_PLACE, PACKED, PIXELS, schedule
from tests.kernels.strategies import problems, quantised, schedules
from tilewise.kernels.errors import LoweringError, ScheduleError, UnsupportedError
from tilewise.kernels.mlir.cpu.script import emit_script, notes
from tilewise.kernels.mlir.proof.prove import prove, prove_script
from tilewise.kernels.mlir.transform.module import mlir_version
from tilewise.kernels.nest import nest_of
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.target import detect

CONV = "conv2d:n=2,h=9,w=11,ci=5,co=19,kh=3,kw=2"
GROUPED = "conv2d:n=2,h=9,w=11,ci=10,co=38,kh=3,kw=2,groups=2"
VOLUME = "conv3d:n=2,d=4,h=6,w=9,ci=6,co=20,kd=2,kh=3,kw=3"
SLICES = ("tile dim=n size=1", "tile dim=od size=1", "tile dim=oh size=2", "pack operand=A",
          "register rows=2 cols=16 outer=cols")  # fmt: skip
NARROW = "conv2d:n=1,h=9,w=11,ci=21,co=21,kh=3,kw=2"
WINDOW = ("register rows=4 cols=16 outer=cols", "jam dim=oh factor=2")
SWEEP = ("stream dim=k depth=8", "register rows=1 cols=32 outer=cols", "skinny dim=n")
LONG = ("register rows=4 cols=1 outer=cols", "split dim=k lanes=32", "unroll factor=2")
COLUMNS = ("pack operand=B", "register rows=2 cols=3 outer=cols", "split dim=k lanes=16")
THREE_REGISTERS = ("register rows=2 cols=1 outer=rows", "split dim=k lanes=48")
OUTER_COLS = ("register rows=2 cols=16 outer=cols",)
OUTER_ROWS = ("register rows=2 cols=16 outer=rows",)
IN_PARTS = ("pack operand=B", "pack operand=A", "register rows=2 cols=32 outer=rows")
RIGHT = [
    # unrolled deeper than a chunk
    ("matmul:m=4,n=16,k=7,dtype=f32",
     ("stream dim=k depth=3", "register rows=2 cols=16 outer=cols", "unroll factor=8")),
    # over a depth of 1 a contraction is elementwise, as its epilogue is
    ("matmul:m=1,n=17,k=1,dtype=i8,zero=a,add", IN_PARTS),
    ("matmul:m=5,n=17,k=1,dtype=f32,bias,add", IN_PARTS),
    ("matmul:m=70,n=101,k=50,dtype=i8", PACKED),
    ("matmul:batch=3,m=9,n=33,k=17,dtype=f64,transpose_a,transpose_b",
     ("tile dim=batch size=1", *PACKED)),
    (f"{CONV},stride=3,dilation=2,pad=2,dtype=f32", ("stream dim=ci depth=2", *IMAGE)),
    (f"{GROUPED},layout=nchw_fchw,pad=1,dtype=f32,bias", ("tile dim=g size=1", *PIXELS)),
    (f"{VOLUME},stride=2x1x2,pad=1x2x0x1x1x1,dtype=f32", SLICES),
    (f"{VOLUME},dilation=1x2x2,pad=2,dtype=bf16,out=bf16", ("stream dim=ci depth=2", *SLICES)),
    (f"{VOLUME},layout=ncdhw_fcdhw,pad=1,dtype=i8,bias", PIXELS),
    (f"{NARROW},groups=21,pad=2,stride=2,dtype=bf16", ("tile dim=co size=16", *WINDOW)),
    ("matmul:m=1,n=100,k=37,dtype=i8", (*SWEEP, "k_streams dim=k streams=4")),
    # outputs of one row or column, and an image whose end a stride leaves unread
    ("conv2d:n=1,h=6,w=8,ci=4,co=16,kh=3,kw=3,stride=4,dtype=f32", IN_PLACE),
    ("conv2d:n=2,h=6,w=8,ci=4,co=16,kh=3,kw=3,stride=4,layout=nchw_fchw,dtype=f32", PIXELS),
    # vectors that leave some of the reduction, or are wider than all of it
    ("matmul:m=9,n=1,k=131,dtype=bf16,bias", LONG),
    ("matmul:m=9,n=1,k=31,dtype=i32,init=accumulate", LONG),
    # of the blocks in one loop, the second or third reads padding alone
    ("conv3d:n=2,d=1,h=1,w=1,ci=4,co=8,kd=1,kh=1,kw=1,pad=1,dtype=f32",
     (*SLICES[:2], "tile dim=ow size=2", *SLICES[-2:])),
    ("conv2d:n=2,h=1,w=5,ci=4,co=20,kh=1,kw=1,stride=2x1,pad=1x0x0x0,dtype=f32",
     (SLICES[0], "tile dim=co size=16", "tile dim=ow size=2", *SLICES[-2:])),
    # three registers of sums, which LLVM would take apart badly
    ("matmul:m=5,n=1,k=230,dtype=f32", THREE_REGISTERS),
    ("matmul:m=37,n=3,k=40,dtype=f32", ("parallel dim=m parts=2", *COLUMNS)),
]  # fmt: skip


GROUPS = [
    # Every kind of narrow groups: padding, strides, several inputs or outputs, both layouts.
    ("h=6,w=9,ci=24,co=24,kh=2,kw=3,pad=1,groups=6,dtype=f32,bias,epilogue=relu", OUTER_ROWS),
    ("h=6,w=9,ci=24,co=18,kh=2,kw=3,groups=6,dtype=bf16", ("register rows=2 cols=15 outer=rows",)),
    ("h=6,w=9,ci=24,co=6,kh=2,kw=3,stride=2,pad=1,groups=6,dtype=f32", OUTER_ROWS),
    ("h=6,w=9,ci=24,co=24,kh=2,kw=3,pad=1,groups=6,layout=nchw_fchw,dtype=f32", OUTER_ROWS),
    # Blocks whose groups do not divide all: few are written out, of many each has fewer columns.
    ("h=3,w=3,ci=16,co=32,kh=2,kw=2,groups=16,dtype=f32", ("register rows=2 cols=12 outer=rows",)),
    ("h=3,w=3,ci=64,co=256,kh=2,kw=2,groups=64,dtype=f32", ("register rows=2 cols=48 outer=rows",)),
    # A part of 24 channels is one block, and stays whole until the registers cut it.
    ("h=1,w=6,ci=64,co=48,kh=1,kw=2,groups=16,dtype=f32",
     ("parallel dim=co parts=2", "tile dim=co size=36", "register rows=5 cols=12 outer=rows")),
    # The twelfth output of a line is the last that sees the image: the other tile has nothing.
    ("h=5,w=11,ci=16,co=16,kh=2,kw=1,pad=1,groups=16,dtype=f32,layout=nchw_fchw",
     ("register rows=1 cols=12 outer=cols",)),
    # Each pane spreads pixels of its own.
    ("h=9,w=5,ci=6,co=3,kh=3,kw=3,pad=1,groups=3,dtype=f32", ("tile dim=oh size=6", *OUTER_COLS)),
    ("h=3,w=2,ci=6,co=3,kh=3,kw=1,stride=2,dilation=2,pad=2,groups=3,dtype=i8",
     (*OUTER_COLS, "jam dim=oh factor=2")),
    # Filters no wider than the padding: parts of the image may be zeros alone, or one tap.
    ("h=5,w=1,ci=3,co=15,kh=1,kw=1,stride=3,pad=1,groups=3,dtype=f64",
     ("register rows=1 cols=15 outer=rows", "jam dim=oh factor=3")),
    ("h=13,w=3,ci=4,co=4,kh=3,kw=1,stride=2,pad=1,groups=4,layout=nchw_fchw,dtype=bf16",
     ("tile dim=oh size=2", *OUTER_ROWS)),
    ("h=5,w=32,ci=2,co=2,kh=1,kw=1,pad=4,groups=2,layout=nchw_fchw,dtype=f32",
     ("tile dim=oh size=2", *OUTER_COLS)),
    # Loops over blocks of padded lines: MLIR asks of each whether it is of padding alone.
    ("h=7,w=9,ci=2,co=4,kh=3,kw=3,pad=1,groups=2,dtype=f32",
     ("tile dim=oh size=2", "register rows=3 cols=4 outer=cols")),
    ("h=5,w=7,ci=6,co=6,kh=3,kw=3,pad=2,groups=2,dtype=bf16",
     ("tile dim=oh size=3", "register rows=2 cols=6 outer=rows", "jam dim=oh factor=3")),
    ("h=13,w=19,ci=4,co=4,kh=3,kw=3,stride=2,pad=1,groups=4,layout=nchw_fchw,dtype=f32",
     ("tile dim=oh size=2", *OUTER_ROWS)),
    # Lines parted in registers.
    ("h=12,w=40,ci=3,co=3,kh=3,kw=3,pad=1,stride=2,groups=3,layout=nchw_fchw,dtype=bf16,bias",
     OUTER_COLS),
    # Depthwise layers whose taps in the padding are left out.
    *((f"h=12,w=14,ci=16,co=16,groups=16,{keys}", ("register rows=1 cols=16 outer=cols",))
      for keys in ("kh=3,kw=3,pad=3,stride=2,dtype=f32", "kh=1,kw=3,pad=1,dtype=bf16",
                   "kh=3,kw=3,pad=2,dilation=2,dtype=f32,bias",
                   "kh=3,kw=3,pad=1,layout=nchw_fchw,dtype=i8",
                   "kh=3,kw=3,pad=2,dilation=2,layout=nchw_fchw,dtype=f32",
                   "kh=3,kw=3,pad=1,dtype=f64,epilogue=relu")),
    ("h=1,w=2,ci=16,co=16,kh=3,kw=3,pad=1,groups=16,dtype=f32", OUTER_COLS),
]  # fmt: skip


@pytest.mark.parametrize(("text", "steps"), some(GROUPS, of=5, all_of=2))
def test_script_of_narrow_groups_proves(text: str, steps: tuple[str, ...]) -> None:
    proof = prove(parse_problem(f"conv2d:n=1,{text}"), schedule(*steps))
    assert proof.ok, proof.message


@pytest.mark.full
@pytest.mark.parametrize(("text", "steps"), RIGHT)
def test_script_proves(text: str, steps: tuple[str, ...]) -> None:
    problem = parse_problem(text)
    proof = prove(problem, schedule(*steps), seconds=60)
    assert proof.ok, proof.message
    assert proof.gflops is not None and proof.interval is not None
    assert proof.interval[0] <= proof.gflops <= proof.interval[1]
    columns = nest_of(problem).extent(nest_of(problem).col)
    assert proof.vectorised or columns == 1


def test_proof_fills_the_header() -> None:
    proof = prove(parse_problem("matmul:m=8,n=16,k=8,dtype=i8"), schedule(*IN_PLACE))
    header = proof.script.partition("module")[0]
    assert "problem:  matmul:m=8,n=16,k=8,dtype=i8" in header
    assert f"mlir:     {mlir_version()}" in header
    assert "GFLOP/s" in header
    assert proof.ok and "VNNI" in proof.notes[0]


@pytest.mark.parametrize(("text", "said"), [
    ("matmul:m=8,n=16,k=8,dtype=f32", []), ("matmul:m=8,n=16,k=8,dtype=bf16", ["bf16"]),
    ("matmul:m=8,n=16,k=8,dtype=i8,weights=constant", ["VNNI", "every run"]),
    ("matmul:m=8,n=16,k=8,dtype=f32,transpose_a", ["[depth, rows]"]),
    ("conv2d:n=1,h=4,w=4,ci=4,co=4,kh=2,kw=1,layout=nchw_fchw,dtype=f32", ["gathered"]),
    ("conv2d:n=1,h=4,w=4,ci=4,co=4,kh=1,kw=1,layout=nchw_fchw,dtype=f32", []),
])  # fmt: skip
def test_what_scripts_do_otherwise_is_said(text: str, said: list[str]) -> None:
    found = notes(parse_problem(text))
    assert len(found) == len(said)
    assert all(word in note for word, note in zip(said, found, strict=True))
    script = emit_script(parse_problem(text), schedule("pack operand=B", *IN_PLACE))
    assert all(f"// note:     {note}\n" in script for note in found)


@pytest.mark.parametrize(("text", "steps", "error", "why"), [
    ("matmul:m=4,n=1,k=64,dtype=f32,transpose_a", (*LONG[:1], "split dim=k lanes=16"),
     ScheduleError, r"contiguous rows of A.*drop the step"),
    ("matmul:m=4,n=4,k=4,dtype=f32", ("register rows=4 cols=1 outer=cols",), LoweringError,
     "more cols"),
    ("matmul:m=2,n=16,k=8,dtype=f32,transpose_a", ("register rows=1 cols=16 outer=rows",),
     LoweringError, "more rows"),
    ("matmul:m=100,n=16,k=8,dtype=f32", ("tile dim=m size=40", "tile dim=m size=16", *IN_PLACE),
     LoweringError, "dim m"),
    ("conv2d:n=1,h=9,w=9,ci=8,co=32,kh=3,kw=3,dtype=f32",
     ("winograd output=4", *IN_PARTS[:2], *OUTER_COLS),
     UnsupportedError, "the step winograd has no script"),
    ("conv2d:n=2,h=3,w=5,ci=8,co=20,kh=1,kw=1,dtype=f32", ("fuse", *IN_PARTS), UnsupportedError,
     "the step fuse has no script"),
])  # fmt: skip
def test_what_no_script_can_do_is_refused(text, steps, error, why) -> None:
    with pytest.raises(error, match=why):
        emit_script(parse_problem(text), schedule(*steps))


def check(problem: Problem, schedule: Schedule) -> None:
    """The script proves; what cannot be written as one is no case."""
    try:
        script = emit_script(problem, schedule)
    except LoweringError:
        assume(False)
    proof = prove_script(problem, script)
    assert proof.ok, proof.message
    assert proof.vectorised or nest_of(problem).extent(nest_of(problem).col) == 1


@pytest.mark.timeout(1800)
@cases(20, short=6)
@given(st.data())
def test_random_schedules_prove(data: st.DataObject) -> None:
    problem = data.draw(problems)
    check(problem, data.draw(schedules(problem, detect())))


@pytest.mark.timeout(3600)
@cases(16, short=2)
@given(st.data())
def test_random_schedules_of_quantised_problems_prove(data: st.DataObject) -> None:
    problem = data.draw(quantised)
    check(problem, data.draw(schedules(problem, detect())))
