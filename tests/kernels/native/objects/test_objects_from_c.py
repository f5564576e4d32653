"""Objects as C programs use them: compiled, linked in every way, run by threads and by valgrind."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.kernels.native_case import AVX2
from tilewise.kernels.native.objects.interface import Interface
from tilewise.kernels.native.objects.make import KernelObject, make_object
from tilewise.kernels.oracle.operands import make_operands
from tilewise.kernels.oracle.reference import compare, reference
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.steps import InstructionChoice, Pack, Parallel, Register, Step, Tile, Unroll
from tilewise.kernels.target import Target

CC = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
CXX = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
VALGRIND = shutil.which("valgrind")
needs_c = pytest.mark.skipif(
    CC is None, reason="the objects are called from C, and this machine has none of cc, gcc, clang"
)
STRICT = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O1", "-pthread")

PROGRAM = """
#define _POSIX_C_SOURCE 200809L
#include "kernel.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static void *read_file(const char *name, size_t bytes, size_t alignment) {{
    void *to = NULL;
    FILE *file = fopen(name, "rb");
    if (posix_memalign(&to, alignment, bytes) || !file || fread(to, 1, bytes, file) != bytes)
        exit(10);
    fclose(file);
    return to;
}}

static void *memory(size_t bytes) {{
    void *to = NULL;
    if (posix_memalign(&to, {name}_ALIGNMENT, bytes ? bytes : 1)) exit(11);
    return to;
}}

static int save(const void *from, size_t bytes) {{
    FILE *file = fopen("out.bin", "wb");
    return !file || fwrite(from, 1, bytes, file) != bytes || fclose(file) ? 14 : 0;
}}

{declared}

static void *run_part(void *part) {{
    return (void *)(intptr_t){name}_part({arguments}, (intptr_t)part);
}}

int main(void) {{
    pthread_t threads[{name}_PARTS];
    if (!{name}_supported()) return 77;
    {read}
    for (intptr_t part = 0; part < {name}_PARTS; part++)
        if (pthread_create(&threads[part], NULL, run_part, (void *)part)) return 12;
    for (int part = 0; part < {name}_PARTS; part++) {{
        void *code;
        pthread_join(threads[part], &code);
        if (code) return 13;
    }}
    if ({accumulates}) return save(out, {out_bytes});
    int code = {name}({arguments});
    return code ? code : save(out, {out_bytes});
}}
"""


def program(problem: Problem, interface: Interface, operands: dict[str, np.ndarray]) -> str:
    """A program that reads operands from files, runs the parts in threads, and then all."""
    name = interface.alias
    declared, read = [], []
    for one in interface.arguments:
        declared.append(f"static {one.type} *{one.name};")
        if one.name == "scratch":
            read.append(f"scratch = memory({name}_SCRATCH_BYTES);")
        elif one.name == "packed":
            read.append(f"packed = memory({name}_PACKED_BYTES);")
            size = operands["B"].nbytes
            read.append(
                f'void *weights = read_file("B.bin", {size}, 8);'
                f" if ({name}_prepare(weights, packed)) return 9; free(weights);"
            )
        else:
            size = operands[one.operand].nbytes
            read.append(f'{one.name} = read_file("{one.operand}.bin", {size}, 8);')
    return PROGRAM.format(
        name=name,
        declared="\n".join(declared),
        arguments=", ".join(one.name for one in interface.arguments),
        read="\n    ".join(read),
        accumulates=int(problem.accumulates),
        out_bytes=operands["C"].nbytes,
    )


def run(folder: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def compiled(folder: Path, main: str, made: KernelObject, *flags: str) -> str:
    """A program that calls an object, compiled in a folder."""
    assert CC is not None
    (folder / "kernel.h").write_text(made.header)
    (folder / "kernel.o").write_bytes(made.object)
    (folder / "main.c").write_text(main)
    done = run(folder, CC, *STRICT, *flags, "main.c", "kernel.o", "-o", "program")
    assert done.returncode == 0, done.stderr
    return str(folder / "program")


def build(folder: Path, problem: Problem, made: KernelObject, *flags: str) -> str:
    """The program, compiled in a folder beside its operands."""
    operands = make_operands(problem, 9)
    for name, array in operands.items():
        (folder / f"{name}.bin").write_bytes(array.tobytes())
    return compiled(folder, program(problem, made.interface, operands), made, *flags)


def check_output(folder: Path, problem: Problem) -> None:
    operands = make_operands(problem, 9)
    out = np.fromfile(folder / "out.bin", operands["C"].dtype).reshape(operands["C"].shape)
    assert np.less_equal(*compare(problem, out, reference(problem, operands)))


PACKS = (Pack("B"), Pack("A"))
CASES: dict[str, tuple[Step, ...]] = {
    "matmul:m=33,n=65,k=47,dtype=f32,bias,epilogue=relu": (Parallel("m", 2), Tile("n", 32), *PACKS),
    "matmul:m=33,n=65,k=47,dtype=i8,init=accumulate": (Parallel("n", 3), *PACKS),
    "matmul:batch=3,m=13,n=33,k=21,dtype=f64,transpose_a": (
        Parallel("batch", 3), Tile("batch", 1), *PACKS
    ),
    "matmul:m=13,n=33,k=21,dtype=bf16,weights=constant": PACKS,
    "conv2d:n=2,h=9,w=11,ci=5,co=21,kh=3,kw=2,stride=2,pad=1,dtype=f32,bias": (
        Pack("B"), Tile("n", 1), Pack("A")
    ),
}  # fmt: skip


@pytest.mark.full
@needs_c
@pytest.mark.parametrize("text", CASES)
@pytest.mark.parametrize("flags", [("-fPIE", "-pie"), ("-static",)], ids=["pie", "static"])
def test_c_programs_run_it(flags: tuple[str, ...], text: str, host: Target, tmp_path: Path) -> None:
    problem = parse_problem(text)
    lanes = host.lanes(problem.element.name)
    schedule = Schedule((*CASES[text], Register(3, lanes), Unroll(2)))
    made = make_object(problem, schedule, host)
    done = run(tmp_path, build(tmp_path, problem, made, *flags))
    assert done.returncode == 0, done
    check_output(tmp_path, problem)


TILE_FEATURES = ("amx-tile", "amx-bf16", "amx-int8")
PROCESSES = """
#define _DEFAULT_SOURCE
#include "kernel.h"
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static float out[96 * 160];
static uint16_t a[96 * 64], b[64 * 160];
static uint8_t scratch[{name}_SCRATCH_BYTES + 64];
static volatile int signals, needed;

static void count(int number) {{ signals += number == SIGALRM; }}

static int multiply(void) {{
    void *to = scratch + (64 - (uintptr_t)scratch % 64) % 64;
    for (int i = 0; i < 96 * 64; i++) a[i] = 0x3f80; /* 1 */
    for (int i = 0; i < 64 * 160; i++) b[i] = 0x4000; /* 2 */
    for (int run = 0; run < 500 || signals < needed; run++) {{
        if ({name}(a, b, out, to)) return 1;
        for (int i = 0; i < 96 * 160; i++) if (out[i] != 128) return 2;
    }}
    return 0;
}}

static int in_child(int asks) {{
    int status = 0;
    pid_t child = fork();
    if (!child) _exit(asks && !{name}_supported() ? 77 : multiply());
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}}

int main(void) {{
    if (in_child(0) != -SIGILL) return 10;  /* Linux has not been asked */
    if (in_child(1)) return 11;
    if (in_child(0) != -SIGILL) return 12;  /* a child's permission is its own */
    if (!{name}_supported() || !{name}_supported()) return 13;
    if (in_child(0)) return 14;
    signal(SIGALRM, count);
    needed = 20;
    ualarm(1000, 1000);
    return multiply();
}}
"""


def has_tiles(host: Target) -> None:
    if missing := [name for name in TILE_FEATURES if name not in host.features]:
        pytest.skip(f"this machine has no {', '.join(missing)}")


@needs_c
@pytest.mark.parametrize("dtype", ["bf16", "i8"])
def test_parts_in_threads_multiply_matrix_tiles(dtype: str, host: Target, tmp_path: Path) -> None:
    has_tiles(host)
    problem = parse_problem(f"matmul:m=100,n=70,k=96,dtype={dtype}")
    op = {"bf16": "x86.amx.tdpbf16ps", "i8": "x86.amx.tdpbssd"}[dtype]
    steps = Parallel("m", 3), Pack("B"), InstructionChoice(op), Register(32, 32, "rows")
    made = make_object(problem, Schedule(steps), host)
    assert "For Linux alone" in made.header
    done = run(tmp_path, build(tmp_path, problem, made))
    assert done.returncode == 0, done
    check_output(tmp_path, problem)


@needs_c
def test_each_process_asks_for_matrix_tiles(host: Target, tmp_path: Path) -> None:
    has_tiles(host)
    problem = parse_problem("matmul:m=96,n=160,k=64,dtype=bf16")
    steps = Pack("B"), InstructionChoice("x86.amx.tdpbf16ps"), Register(32, 32, "rows")
    made = make_object(problem, Schedule(steps), host)
    program = compiled(tmp_path, PROCESSES.format(name=made.interface.alias), made)
    assert run(tmp_path, program).returncode == 0


@needs_c
def test_a_shared_library_of_it_needs_no_relocation_of_code(host: Target, tmp_path: Path) -> None:
    assert CC is not None
    problem = parse_problem("matmul:m=33,n=65,k=47,dtype=f32")
    made = make_object(problem, Schedule((Parallel("m", 2), *PACKS, Register(3, 16))), host)
    (tmp_path / "kernel.o").write_bytes(made.object)
    command = [CC, "-shared", "-nostdlib", "-Wl,-z,text", "-Wl,-z,defs", "-Wl,--fatal-warnings"]
    done = run(tmp_path, *command, "kernel.o", "-o", "kernel.so")
    assert done.returncode == 0, done.stderr


@needs_c
def test_kernels_of_one_problem_link_together(host: Target, tmp_path: Path) -> None:
    """The first header names both without a hash; the second kernel has its full name."""
    assert CC is not None
    problem = parse_problem("matmul:m=8,n=16,k=4,dtype=f32")
    schedules = [Schedule((Register(rows, 16),)) for rows in (2, 4)]
    made = [make_object(problem, schedule, host) for schedule in schedules]
    for i, one in enumerate(made):
        (tmp_path / f"{i}.h").write_text(one.header)
        (tmp_path / f"{i}.o").write_bytes(one.object)
    calls = " && ".join(f"{one.interface.name}_supported()" for one in made)
    text = (
        f'#include "0.h"\n#include "1.h"\n#include "0.h"\nint main(void) {{ return !({calls}); }}'
    )
    (tmp_path / "main.c").write_text(text)
    done = run(tmp_path, CC, *STRICT, "main.c", "0.o", "1.o", "-o", "program")
    assert done.returncode == 0, done.stderr
    assert run(tmp_path, str(tmp_path / "program")).returncode == 0


@pytest.mark.skipif(
    CC is None or CXX is None,
    reason="compilers of C and C++ read the header, and this machine lacks one of them",
)
def test_the_header_is_c99_and_cxx(host: Target, tmp_path: Path) -> None:
    assert CC is not None and CXX is not None
    problem = parse_problem("matmul:m=8,n=16,k=4,dtype=f16,bias,weights=constant")
    made = make_object(problem, Schedule((*PACKS, Register(2, 16))), host)
    sizes = [f"{made.interface.alias}_{name}_BYTES" for name in ("SCRATCH", "PACKED")]
    (tmp_path / "kernel.h").write_text(made.header)
    (tmp_path / "user").write_text(
        f'#include "kernel.h"\n#if {sizes[0]} < 64 || {sizes[1]} < 64\n#error too few\n#endif\n'
        f"static const size_t sizes[] = {{{', '.join(sizes)}}};\n"
        "int main(void) { return sizes[0] < sizes[1]; }\n"
    )
    for compiler, language in ((CC, "-std=c99"), (CXX, "-std=c++11")):
        kind = "c" if language.endswith("99") else "c++"
        flags = ["-x", kind, language, "-Wall", "-Wextra", "-Werror", "-pedantic", "-Wconversion"]
        flags += ["-Wold-style-cast"] if kind == "c++" else []
        done = run(tmp_path, compiler, *flags, "-fsyntax-only", "user")
        assert done.returncode == 0, done.stderr


@needs_c
@pytest.mark.skipif(VALGRIND is None, reason="valgrind runs the program, and this machine has none")
def test_valgrind_finds_nothing(host: Target, tmp_path: Path) -> None:
    """With AVX2, which valgrind knows; it has no AVX-512, and an object that needs it says so."""
    assert VALGRIND is not None
    problem = parse_problem("matmul:m=13,n=21,k=17,dtype=f32,bias")
    narrow = Target(host.cpu, features=AVX2, vector_bytes=32, vector_registers=16)
    for target, code in ((narrow, 0), (host, 77 if "avx512f" in host.features else 0)):
        lanes = target.lanes("f32")
        schedule = Schedule((Parallel("m", 2), *PACKS, Register(3, lanes)))
        folder = tmp_path / str(lanes)
        folder.mkdir(exist_ok=True)
        built = build(folder, problem, make_object(problem, schedule, target), "-g")
        done = run(folder, VALGRIND, "--error-exitcode=99", "--leak-check=no", built)
        assert done.returncode == code, done.stderr
    check_output(tmp_path / str(narrow.lanes("f32")), problem)
