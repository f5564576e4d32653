"""A pattern's ops as a module of their own."""

from collections.abc import Sequence

from tilewise.kernels.dispatches.patterns.pattern import Pattern

ENTRY = "main"
SCOPE, WEIGHTS = "model", "B"
"""The parameter that constant weights are in a module."""
_ANY = " {match.operation_name_only}"
_B = 1  # the place of B among a contraction's operands


def function_of(pattern: Pattern, arguments: Sequence[tuple[str, str]], before: str = "") -> str:
    """A function that computes a pattern into its last argument.

    Args:
        pattern: in MLIR's generic form, as it is cut from a module.
        arguments: names and types of the others.
        before: lines that make those of its operands that are no arguments.
    """
    lines = [line for line in pattern.text.splitlines() if line.startswith("  %")]
    root, kind = lines[-1].strip().partition(" ")[0], pattern.result.type
    given = "".join(f"{name}: {of}, " for name, of in arguments)
    return f"""func.func @{ENTRY}({given}%out: {kind} {{iree.abi.output = 0 : index}}) -> {kind} {{
{before}{pattern.text.replace(_ANY, "")}
  func.return {root} : {kind}
}}
"""


def module_of_contraction(pattern: Pattern, *, has_constant_weights: bool) -> str:
    """A module of a pattern of a matmul or a convolution.

    Args:
        pattern: whose second operand is B.
        has_constant_weights: whether B is a parameter of the module, as a model's weights are.
    """
    arguments = [(value.name, value.type) for value in pattern.operands]
    if not has_constant_weights:
        return function_of(pattern, arguments)
    name, kind = arguments.pop(_B)
    weights = f'util.global private @weights = #flow.parameter.named<"{SCOPE}"::"{WEIGHTS}">'
    before = f"  {name} = util.global.load @weights : {kind}\n"
    return f"{weights} : {kind}\n{function_of(pattern, arguments, before)}"
