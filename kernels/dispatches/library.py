"""A library: what is in front of IREE's own compiler, and replaces ops by tuned kernels."""

from collections.abc import Sequence

from kernels.dispatches.entry import Compiled, Entry, compiled
from kernels.dispatches.executable import aliases_text, executable_text
from kernels.dispatches.patterns.pattern import patterns
from kernels.dispatches.replacement import matcher_text, replacer_text
from kernels.problem import Problem
from kernels.target.model import Target

FLAG = "--iree-preprocessing-transform-spec-filename"
_STEP = """
    %functions{step} = transform.structured.match ops{{["util.func"]}} in %module \
: (!transform.any_op) -> !transform.any_op
    transform.foreach %functions{step} : !transform.any_op {{
    ^bb0(%function: !transform.any_op):
      transform.foreach_match in %function
        {pairs} : (!transform.any_op) -> !transform.any_op
    }}
    transform.apply_dce to %module : !transform.any_op"""
_PADS = """
    %pads = transform.structured.match ops{["tensor.pad"]} in %module \
: (!transform.any_op) -> !transform.any_op
    %slices = transform.structured.rewrite_in_destination_passing_style %pads \
: (!transform.any_op) -> !transform.any_op"""


def library_text(entries: Sequence[Entry], target: Target, notes: Sequence[str] = ()) -> str:
    """The file for `iree-compile --iree-preprocessing-transform-spec-filename=`.

    Args:
        entries: problems with their schedules; the order does not matter.
        target: the machine that they are for.
        notes: lines for whoever reads the file.

    Raises:
        UnsupportedError: an operation is not one of ours.
        ScheduleError: a schedule cannot be applied to its problem.
        LoweringError: a schedule asks for what the target has not, or this is no x86-64.
    """
    return text_of([compiled(entry, target) for entry in entries], target, notes)


def text_of(kernels: Sequence[Compiled], target: Target, notes: Sequence[str] = ()) -> str:
    """As `library_text`, of kernels that are compiled already."""
    unique = list({kernel.name: kernel for kernel in kernels}.values())
    unique.sort(key=lambda kernel: (-_rank(kernel.problem), kernel.name))
    bodies = "".join(executable_text(kernel) for kernel in unique)
    sequences = "".join(_sequences(kernel) for kernel in unique)
    return (
        f"{_head(unique, target, notes)}{aliases_text(unique)}"
        f"module attributes {{transform.with_named_sequence}} {{\n{bodies}{sequences}\n"
        f"{_main(unique)}}}\n"
    )


def fused(problem: Problem) -> int:
    """How many steps a problem has besides its contraction."""
    return problem.has_bias + problem.has_relu


def _rank(problem: Problem) -> int:
    """What is looked for first: more steps, and constant weights before any weights."""
    return 2 * fused(problem) + problem.has_constant_weights


def _head(kernels: Sequence[Compiled], target: Target, notes: Sequence[str]) -> str:
    features = sorted({name for kernel in kernels for name in kernel.made.features})
    lines = [
        "Tuned kernels for IREE, made by Tilewise:",
        f"  iree-compile {FLAG}=FILE ...",
        f"Tuned for {target.canonical}. The processor that runs them has to have",
        f"  {', '.join(features) or 'x86-64, and no extension of it'}",
        *notes,
    ]
    lines += [f"{kernel.problem.canonical}: {kernel.name}" for kernel in kernels]
    return "".join(f"// {line}\n" for line in lines)


def _sequences(kernel: Compiled) -> str:
    found = patterns(kernel.problem)
    matchers = (matcher_text(kernel, pattern, at) for at, pattern in enumerate(found))
    return "".join([*matchers, replacer_text(kernel)])


def _main(kernels: Sequence[Compiled]) -> str:
    """Ops that mean more are looked for first, in passes of their own."""
    has_pads = any(getattr(kernel.problem, "pad", 0) for kernel in kernels)
    steps = ""
    for step, level in enumerate(sorted({fused(kernel.problem) for kernel in kernels})[::-1]):
        found = [
            (-len(pattern.graph.ops), f"@{kernel.name}_is{at} -> @{kernel.name}_use")
            for kernel in kernels
            if fused(kernel.problem) == level
            for at, pattern in enumerate(patterns(kernel.problem))
        ]
        pairs = [pair for _, pair in sorted(found, key=lambda one: one[0])]
        steps += _STEP.format(step=step, pairs=",\n        ".join(pairs))
    return f"""
  transform.named_sequence @__transform_main(%module: !transform.any_op {{transform.consumed}}) {{\
{_PADS if has_pads else ""}
    transform.apply_cse to %module : !transform.any_op{steps}
    %inlined = transform.apply_registered_pass "inline" to %module \
: (!transform.any_op) -> !transform.any_op
    transform.yield
  }}
"""
