"""The module of a script: its header, its sequences, and a payload in front of them."""

import textwrap
from collections.abc import Iterable
from importlib import metadata

from tilewise.kernels.mlir.payload.function import payload
from tilewise.kernels.problem import Problem

HEADER_END = "//\n"
MODULE = "module attributes {transform.with_named_sequence} {\n"


def mlir_version() -> str:
    """Return distribution and version of the MLIR that proves scripts; import no compiler."""
    try:
        return f"iree-base-compiler {metadata.version('iree-base-compiler')}"
    except metadata.PackageNotFoundError:
        return "iree-base-compiler absent"


def module_of(facts: Iterable[str], notes: Iterable[str], sequences: Iterable[str]) -> str:
    """Return a script: `facts` in its header, `notes` as comments, then the named sequences."""
    header = "".join(f"// {line}\n" for line in facts) + HEADER_END
    comments = "".join(f"// {line}".rstrip() + "\n" for line in (*notes, ""))
    body = textwrap.indent("\n".join(sequences), "  ")
    return f"{header}{comments}{MODULE}\n{body}}}\n"


def with_payload(problem: Problem, script: str) -> str:
    """Return the module with the payload of `problem` before the script."""
    return with_function(payload(problem), script)


def with_function(function: str, script: str) -> str:
    """Return the module with a function before the script."""
    head, brace, tail = script.partition(MODULE)
    return f"{head}{brace}\n{textwrap.indent(function, '  ')}{tail}"
