"""What users call of exported modules: functions of NumPy arrays, with their checks."""

from collections.abc import Mapping
from pathlib import Path
from textwrap import indent

import numpy as np

from tilewise.kernels.native.export.description import operand_names
from tilewise.kernels.native.export.templates import filled
from tilewise.kernels.oracle.operands import NUMPY_TYPES, operand_type
from tilewise.kernels.problem import Problem

_TEMPLATES = Path(__file__).with_name("templates")


def types(problem: Problem) -> dict[str, str]:
    """Return NumPy's name of each operand's type."""
    return {
        name: np.dtype(NUMPY_TYPES[operand_type(problem, name)]).name
        for name in problem.operand_shapes
    }


def described(problem: Problem, sections: Mapping[str, str], hint: str) -> str:
    """Return the docstring of a module."""
    text = "\n\n".join(f"{title}:\n{indent(body, '    ')}" for title, body in sections.items())
    return f"{problem.op.capitalize()}, a kernel tuned by Tilewise.\n\n{text}\n\n{hint}\n"


def call_text(problem: Problem, *, is_packed: bool) -> str:
    """Return how the function is called."""
    names = operand_names(problem)
    before, weights = "", names["B"]
    if is_packed:
        given = ", ".join(names[name] for name in problem.constants)
        before, weights = f"packed = pack({given})  # once\n", "packed"
    others = (name for name in arguments(problem, is_packed=is_packed) if name not in "ABC")
    more = "".join(f", {name}={name}" for name in others)
    if problem.accumulates:
        return f"{before}{problem.op}({names['A']}, {weights}, out{more})  # adds to out"
    return f"{before}out = {problem.op}({names['A']}, {weights}{more})"


def pack_function(problem: Problem) -> str:
    """Return the function that packs weights, for all calls."""
    names = {name: operand_names(problem)[name] for name in problem.constants}
    checks = [
        f'    _check("{given}", {given}, {name.upper()}_SHAPE, {name.upper()}_TYPE)'
        for name, given in names.items()
    ]
    return template(
        "pack",
        op=problem.op,
        given=", ".join(names.values()),
        checks="\n".join(checks),
        addresses=", ".join(f"{given}.ctypes.data" for given in names.values()),
    ).strip()


def arguments(problem: Problem, *, is_packed: bool) -> dict[str, str]:
    """Return what the function that users call takes, by operand."""
    names = operand_names(problem)
    given = {"A": names["A"], "B": "packed" if is_packed else names["B"], "C": "out"}
    return given | {name: name for name in problem.extras if name not in problem.constants}


def public_function(problem: Problem, *, is_packed: bool, run: str, sizes: str = "") -> str:
    """Return the function that users call, with its checks; it runs `run`.

    `sizes` are lines that find the shapes of the operands where those vary.
    """
    given = arguments(problem, is_packed=is_packed)
    second = given["B"]
    check_second = f'_check("{second}", {second}, B_SHAPE, B_TYPE)'
    if is_packed:
        check_second = '_check("packed", packed, (PACKED_BYTES,), np.dtype("uint8"))  # from pack()'
    check_bias = '    if bias is not None:\n        raise ValueError("this kernel adds no bias")'
    if problem.has_bias:
        check_bias = '    _check("bias", bias, BIAS_SHAPE, BIAS_TYPE)'
    others = [name for name in given if name not in ("A", "B", "C", "bias")]
    for name in others:
        check_bias += f'\n    _check("{name}", {name}, {name.upper()}_SHAPE, {name.upper()}_TYPE)'
    default_out = "out = np.empty(C_SHAPE, C_TYPE)"
    if problem.accumulates:
        default_out = 'raise ValueError("give out: this kernel adds to what it holds")'
    return template(
        "call",
        op=problem.op,
        first=given["A"],
        second=second,
        more="".join(f", {name}=None" for name in others),
        sizes=sizes,
        check_second=check_second,
        check_bias=check_bias,
        default_out=default_out,
        reads=", ".join(name for name in given.values() if name != "out"),
        run=run,
    )


def template(name: str, **values: object) -> str:
    """Return a filled template of modules."""
    return filled(_TEMPLATES / f"{name}.py.tmpl", **values)
