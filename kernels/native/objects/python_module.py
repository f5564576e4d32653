"""A Python module for all sizes of a range: its proven object, and a function that calls it.

The object finds the schedule of a size by one look-up in a table. The module reads the size from
the shapes of the operands. It imports only numba, whose LLVM loads the object, and numpy.
"""

import base64
import zlib
from textwrap import indent

from tilewise.kernels.native.export.calls import (
    arguments,
    call_text,
    described,
    pack_function,
    public_function,
    types,
)
from tilewise.kernels.native.export.description import formula
from tilewise.kernels.native.export.templates import filled
from tilewise.kernels.native.objects.features import TEMPLATES
from tilewise.kernels.native.objects.header import shapes_of, variant_lines
from tilewise.kernels.native.objects.interface import Interface
from tilewise.kernels.native.objects.make import KernelObject
from tilewise.kernels.problem import Problem
from tilewise.kernels.range_schedule import RangeSchedule
from tilewise.kernels.system.toolchain import identity
from tilewise.kernels.target.model import Target

_WIDTH = 96
_HINT = "The machine code was proven at several sizes of each schedule. A batch of 1 has its axis."


def module_text(schedule: RangeSchedule, target: Target, made: KernelObject) -> str:
    """Return the source of a module around the object of a range, which is reproducible."""
    problem, interface = schedule.problems.smallest, made.interface
    is_packed = bool(interface.weights)
    given = arguments(problem, is_packed=is_packed)
    shapes = _shapes(problem, made)
    code = base64.b85encode(zlib.compress(made.object, 9)).decode()
    return filled(
        TEMPLATES / "range_module.py.tmpl",
        docstring=_docstring(schedule, target, made, shapes),
        problem=schedule.problems,
        target=target.canonical,
        toolchain=identity(),
        name=interface.name,
        imports="from concurrent.futures import ThreadPoolExecutor\n" * (interface.parts > 1),
        os="import os\n" * (interface.parts > 1),
        functions="\n".join(_functions(interface)),
        facts=_facts(problem, made, shapes),
        code="\n".join(code[at : at + _WIDTH] for at in range(0, len(code), _WIDTH)),
        pack=f"{pack_function(problem)}\n\n\n" if is_packed else "",
        call=public_function(
            problem,
            is_packed=is_packed,
            run=_run(made, given),
            sizes=indent("\n".join(_size_lines(made, given, shapes)) + "\n", "    "),
        ).strip(),
    )


def _shapes(problem: Problem, made: KernelObject) -> dict[str, str]:
    """Return the extents of each operand in Python, which may name sizes."""
    found = shapes_of(problem, made.interface.sizes).items()
    return {name: ", ".join(shape).replace(" / ", " // ") for name, shape in found}


def _docstring(
    schedule: RangeSchedule, target: Target, made: KernelObject, shapes: dict[str, str]
) -> str:
    problem, names = schedule.problems.smallest, made.interface.arguments
    dtypes, weights = types(problem), made.interface.weights
    operands = {one.operand: one.name for one in (*names, *weights) if one.operand}
    lines = [f"{name:<8} {dtypes[one]}[{shapes[one]}]" for one, name in operands.items()]
    sections = {
        "Problems": str(schedule.problems),
        "Computes": formula(problem),
        "Operands, contiguous NumPy arrays": "\n".join(lines),
        "Call": f"from MODULE import {problem.op}\n" + call_text(problem, is_packed=bool(weights)),
        "Schedules": "\n".join(variant_lines(schedule)),
        "Tuned for": f"{target.canonical}; needs {', '.join(made.features) or 'no extension'}",
    }
    return described(problem, sections, _HINT)


def _facts(problem: Problem, made: KernelObject, shapes: dict[str, str]) -> str:
    """Return sizes, types, and the shapes that do not vary, as assignments."""
    interface = made.interface
    lines = [f"{size.name.upper()}_SIZES = {size.values!r}" for size in interface.sizes]
    for name, dtype in types(problem).items():
        shape = "" if _varies(shapes[name]) else f"{name.upper()}_SHAPE = ({shapes[name]},)\n"
        lines.append(f"{shape}{name.upper()}_TYPE = np.dtype({dtype!r})")
    if interface.weights:
        lines.append(f"PACKED_BYTES = {interface.packed_bytes}  # the weights in panels")
    lines.append(f"SCRATCH_BYTES = ({interface.scratch_bytes},)")
    return "\n".join(lines)


def _varies(shape: str) -> bool:
    return any(character.isalpha() for character in shape)


def _size_lines(made: KernelObject, given: dict[str, str], shapes: dict[str, str]) -> list[str]:
    """Return the lines that find the sizes, and the shapes that depend on them."""
    lines = []
    for size in made.interface.sizes:
        axes = {name: shapes[name].split(", ") for name in ("A", "B")}
        operand = next(name for name in axes if size.name in axes[name])
        name, axis = given[operand], axes[operand].index(size.name)
        lines.append(
            f'{size.name} = _extent("{name}", {name}, {len(axes[operand])}, {axis}, '
            f'"{size.name}", {size.name.upper()}_SIZES)'
        )
    varying = [name for name, shape in shapes.items() if _varies(shape)]
    return [*lines, *(f"{name.upper()}_SHAPE = ({shapes[name]},)" for name in varying)]


def _functions(interface: Interface) -> list[str]:
    """Return assignments of the object's functions that are called."""
    given = f"{len(interface.arguments)}, {len(interface.sizes)}"
    lines = [f'_run = _function(_engine, "", {given})']
    if interface.parts > 1:
        lines = [f'_run = _function(_engine, "_part", {given} + 1)']
    if interface.weights:
        lines.append(f'prepare = _function(_engine, "_prepare", {len(interface.weights) + 1})')
    if interface.parts > 1:
        threads = filled(TEMPLATES / "range_threads.py.tmpl", others=interface.parts - 1)
        lines += ["", "", threads.strip()]
    return lines


def _run(made: KernelObject, given: dict[str, str]) -> str:
    """Return the line that calls the object, in all its parts."""
    interface = made.interface
    pointers = [
        f"{given[one.operand]}.ctypes.data" if one.operand else "scratch[0][0]"
        for one in interface.arguments
    ]
    values = ", ".join([*pointers, *(size.name for size in interface.sizes)])
    if interface.parts == 1:
        return f"    _run({values})"
    arrays = [given[one.operand] for one in interface.arguments if one.operand]
    return f"    _run_parts(({', '.join([*arrays, 'scratch'])}), {values})"
