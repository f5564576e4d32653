"""What IREE finds of a library in a module, by function; the code of kernels is not looked at."""

import re
import tempfile
from pathlib import Path

import numpy as np

from tilewise.kernels.dispatches.executable import CompiledEntry
from tilewise.kernels.dispatches.library import text_of
from tilewise.kernels.mlir.iree.compiler import compiled_text
from tilewise.kernels.mlir.iree.module_text import module_text
from tilewise.kernels.native.objects.interface import Interface, problem_name
from tilewise.kernels.native.objects.make import KernelObject
from tilewise.kernels.oracle.operands import Array, empty_aligned
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.target import Target

LINE = 64
TARGET = Target("znver5")


def stand_in(text: str, parts: int = 1, packed_bytes: int = LINE) -> CompiledEntry:
    """A kernel whose code is none: before IREE links, only its interface matters."""
    problem = parse_problem(text)
    name = problem_name(problem)
    packed = packed_bytes if problem.has_constant_weights else 0
    interface = Interface(name, name, (), None, packed, 4, LINE, parts)
    return CompiledEntry(problem, KernelObject(interface, (), b"", b"code", ""), problem)


def library_of(*texts: str) -> str:
    """The library of problems."""
    return text_of([stand_in(text) for text in texts], TARGET)


def module_of(*texts: str) -> str:
    """A module with a function for each problem: `@f0`, `@f1`, ..."""
    made = []
    for at, text in enumerate(texts):
        one = module_text(parse_problem(text))
        made.append(one.replace("@kernel(", f"@f{at}(").replace("@weights", f"@weights{at}"))
    return "\n".join(made)


def found_in(module: str, library: str, *flags: str) -> dict[str, list[str]]:
    """The problems' names that each function of a module calls kernels of."""
    given = [f"--{flag}" for flag in flags]
    text = preprocessed(module, library, *given)
    calls = re.compile(r"flow\.dispatch @(\w+)_executable::@run_\w+\(")
    found = {}
    for body in text.split("util.func public @")[1:]:
        name = body.partition("(")[0].removesuffix("$async")
        if names := calls.findall(body):
            found[name] = names
    return found


def preprocessed(module: str, library: str, *flags: str, phase: str = "preprocessing") -> str:
    """A module after IREE has put kernels into it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "library.mlir"
        path.write_text(library)
        flag = f"--iree-preprocessing-transform-spec-filename={path}"
        return compiled_text(module, phase, (*flags, flag))


def name_of(text: str) -> str:
    """What the kernel of a problem is called here."""
    problem: Problem = parse_problem(text)
    return problem_name(problem)


def random_arrays(*shapes: tuple[int, ...]) -> list[Array]:
    """Arrays of whole cache lines."""
    rng, made = np.random.default_rng(7), list[Array]()
    for shape in shapes:
        made.append(empty_aligned(shape, np.float32))
        made[-1][...] = rng.uniform(-1, 1, shape)
    return made
