"""The inner loop of a stored result as machine code, printed by a child process."""

from typing import Any

from tilewise.service.host.child import answer_of


def inner_loop_text(source: str) -> str:
    """Return the inner loop of a kernel with its counts and bound; takes a second.

    `source` is from `kernel_source`. Call it in a flight of `Services.kernels`. Raises
    ConflictError if it does not compile here.
    """
    return answer_of(f"{__name__}:inner_loop", "the inner loop", source)


def inner_loop(found: dict[str, Any]) -> str:
    """Return the inner loop of a stored result; in the child.

    It stands here and not beside what it calls, since every file of code generation is part of the
    generator's hash, and would make results stale.
    """
    from tilewise.kernels.native.assembly import inspect_result, render

    return render(inspect_result(found))
