"""The module around a script: its header, its first line, and a payload in front of it."""

import textwrap
from importlib import metadata

from tilewise.kernels.mlir.payload.function import payload
from tilewise.kernels.problem import Problem

HEADER_END = "//\n"
MODULE = "module attributes {transform.with_named_sequence} {\n"


def mlir_version() -> str:
    """Distribution and version of the MLIR that proves scripts; imports no compiler."""
    try:
        return f"iree-base-compiler {metadata.version('iree-base-compiler')}"
    except metadata.PackageNotFoundError:
        return "iree-base-compiler absent"


def with_payload(problem: Problem, script: str, function: str | None = None) -> str:
    """The same module with the payload (or another `function`) in front of the script."""
    return with_function(function or payload(problem), script)


def with_function(function: str, script: str) -> str:
    """The same module with a function in front of the script."""
    head, brace, tail = script.partition(MODULE)
    return f"{head}{brace}\n{textwrap.indent(function, '  ')}{tail}"
