"""Modules of ops, what IREE finds of a library in them, and what they compute with kernels."""

import re
import tempfile
from pathlib import Path

import numpy as np

from tilewise.kernels.dispatches.compilation import compiled_with
from tilewise.kernels.dispatches.executable import CompiledEntry, LibraryEntry, compiled
from tilewise.kernels.dispatches.extraction.extract import Cut, cut_module, patterns_of
from tilewise.kernels.dispatches.library import text_of
from tilewise.kernels.mlir.iree.compiler import compiled_text
from tilewise.kernels.mlir.iree.module_text import module_text
from tilewise.kernels.mlir.iree.runtime import LoadedModule, open_device
from tilewise.kernels.native.objects.interface import Interface, problem_name
from tilewise.kernels.native.objects.make import KernelObject
from tilewise.kernels.oracle.operands import Array, empty_aligned
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.target import Target

LINE = 64
TARGET = Target("znver5")


def stand_in(text: str, parts: int = 1, packed_bytes: int = LINE) -> CompiledEntry:
    """A kernel whose code is none: before IREE links, only its interface matters."""
    problem = parse_problem(text)
    name = problem_name(problem)
    packed = packed_bytes if problem.has_constant_weights else 0
    interface = Interface(name, name, (), None, packed, 4, LINE, parts)
    made = KernelObject(interface, (), b"", b"code", "")
    return CompiledEntry(problem, Schedule(()), made=made)


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


def tensor(*shape: int | str, element: str = "f32") -> str:
    """A tensor's type; "?" is a dynamic dim."""
    return f"tensor<{'x'.join(map(str, shape))}x{element}>"


UNIT = "{dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>}"
CONVOLUTION = f"conv_2d_nhwc_hwcf {UNIT}"


def op(name: str, of: str, ins: dict[str, str], out: str, kind: str) -> str:
    """`%name`: a named op of linalg; `ins` are values with their types."""
    types = ", ".join(ins.values())
    given = ", ".join(one.rstrip("'") for one in ins)
    return f"\n  %{name} = linalg.{of} ins({given} : {types}) outs({out} : {kind}) -> {kind}"


def zeros(name: str, kind: str, size: str = "") -> str:
    """`%name`: a tensor of `%zero`, in what `%name_e` is."""
    element = kind.rpartition("x")[2].removesuffix(">")
    return f"\n  %{name}_e = tensor.empty({size}) : {kind}" + op(
        name, "fill", {"%zero": element}, f"%{name}_e", kind
    )


def generic(name: str, places: str, ins: dict[str, str], out: str, kind: str, *body: str) -> str:
    """`%name`: an op whose operands lie as `places` has them, such as "m k, k n -> m n".

    The lines of its body make `%end` of `%x0`, `%x1`, ... and of `%o`.
    """
    each = [one.split() for one in places.replace("->", ",").split(",")]
    dims = list(dict.fromkeys(re.findall("[a-z]", places)))
    maps = ", ".join(f"affine_map<({', '.join(dims)}) -> ({', '.join(one)})>" for one in each)
    kinds = ", ".join('"parallel"' if one in each[-1] else '"reduction"' for one in dims)
    elements = [one.rpartition("x")[2].removesuffix(">") for one in (*ins.values(), kind)]
    inner = ", ".join(f"%x{at}: {one}" for at, one in enumerate(elements[:-1]))
    given, types = ", ".join(one.rstrip("'") for one in ins), ", ".join(ins.values())
    lines = "".join(f"\n    {line}" for line in (*body, f"linalg.yield %end : {elements[-1]}"))
    return f"""
  %{name} = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}}
    ins({given} : {types}) outs({out} : {kind}) {{
  ^bb0({inner}, %o: {elements[-1]}):{lines}
  }} -> {kind}"""


def function(arguments: dict[str, str], result: str, *lines: str, name: str = "main") -> str:
    """A function of values and their types, with `%zero`; its result is `%r`."""
    given = ", ".join(f"%{one}: {kind}" for one, kind in arguments.items())
    return (
        f"func.func @{name}({given}) -> {result} {{\n  %zero = arith.constant 0.0 : f32"
        f"{''.join(lines)}\n  return %r : {result}\n}}\n"
    )


RELU = "%end = arith.maximumf %x0, %zero : f32"
MULTIPLY_ADD = "%m = arith.mulf %x0, %x1 : f32", "%end = arith.addf %o, %m : f32"


def run_with_kernels(
    module: str, host: Target, inputs: list[Array], schedule: Schedule, entry: str = "main"
) -> tuple[list[Cut], Array]:
    """The ops of a module, and what the module computes with kernels for all of them."""
    cuts = cut_module(module.encode())
    assert not [cut.reason for cut in cuts if cut.reason]
    found = dict.fromkeys(cut.problem for cut in cuts)
    kernels = [compiled(LibraryEntry(parse_problem(one), schedule), host) for one in found]
    made = compiled_with(module, text_of(kernels, host, (), patterns_of(cuts)))
    assert len(made.kernels) == len(cuts)
    given = [(one, "FLOAT_32") for one in inputs]
    (result,) = LoadedModule(made.code, open_device(1)).results(entry, given)
    return cuts, result
