"""The functions of an object that C calls, in the language of drivers.

Each checks what it is given, which costs a few nanoseconds, and runs the driver on one part of the
work or on all of them. The driver takes addresses alone: its sizes are known (`known_sizes`).
"""

import ast
from dataclasses import dataclass

from tilewise.kernels.errors import LoweringError
from tilewise.kernels.native.export.driver_source import filled, functions_of
from tilewise.kernels.native.macrokernel.parameters import PARTS, Addresses, bounds, names_of
from tilewise.kernels.native.microkernels.abi import FUNCTIONS
from tilewise.kernels.native.objects.interface import (
    MISALIGNED,
    NO_SUCH_PART,
    NULL,
    OK,
    Argument,
    Interface,
)
from tilewise.kernels.native.plan import Plan

DRIVER, PREPARE, COPY, BOUNDS = "driver", "prepare", "copy_bytes", "part_bounds"
_BARRIER = "wait_for_all"


@dataclass(frozen=True)
class Entries:
    """What others see of a kernel's code.

    Attributes:
        name: of the module.
        functions: the names of what is seen.
        text: the functions in the language of drivers; they call `DRIVER`, `PREPARE` and `COPY`.
        copies: whether they call `COPY`.
        has_supported: whether `NAME_supported` is one of them.
    """

    name: str
    functions: tuple[str, ...]
    text: str
    copies: bool = False
    has_supported: bool = True

    @classmethod
    def of(cls, interface: Interface, planned: Plan) -> "Entries":
        """What C calls of an object."""
        copies = interface.weights is not None and not planned.is_ahead
        text = entries_text(interface, planned)
        return cls(interface.name, interface.functions, text, copies)


def driver_text(planned: Plan) -> str:
    """The printed driver, and what packs ahead, as functions of addresses.

    Parts of a parallel driver do not wait for each other: whoever calls them knows when they end.
    """
    text = _function(planned, DRIVER, (*names_of(Addresses), *edges(planned)))
    return text + (_function(planned, PREPARE, ("b", "b_panels")) if planned.is_ahead else "")


def edges(planned: Plan) -> list[str]:
    """The names of where a part begins and ends along each parallel dim."""
    first, *others = planned.nest.parts
    return [edge for dim in first for edge in bounds(dim)] if others else []


def known_sizes(planned: Plan) -> dict[str, int]:
    """The driver's parameters that are no addresses, and 0 for functions that it has not."""
    absent = dict.fromkeys(FUNCTIONS, 0)
    return {**absent, **planned.sizes, PARTS: len(planned.nest.parts)}


def _function(planned: Plan, name: str, given: tuple[str, ...]) -> str:
    body = [kept for node in functions_of(planned)[name].body for kept in filled(node)]
    body = [node for node in body if not _is_barrier(node)]
    used = {node.id for part in body for node in ast.walk(part) if isinstance(node, ast.Name)}
    known = {*given, *known_sizes(planned)}
    unknown = [one for one in planned.source.parameters if one in used and one not in known]
    if unknown:
        raise LoweringError(f"the driver takes {unknown[0]}, which no object has")
    lines = "\n".join(ast.unparse(ast.fix_missing_locations(node)) for node in body)
    return _printed(name, given, lines.splitlines())


def _is_barrier(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and ast.unparse(node.value).startswith(_BARRIER)


def _printed(name: str, given: tuple[str, ...], lines: list[str]) -> str:
    body = "".join(f"    {line}\n" for line in lines)
    return f"@njit\ndef {name}({', '.join(given)}):\n{body}\n\n"


def entries_text(interface: Interface, planned: Plan) -> str:
    """The functions that C calls."""
    names = tuple(argument.name for argument in interface.arguments)
    checks = _checks(interface.arguments, interface.scratch_bytes)
    call = _call(interface, planned)
    whole = [*checks, f"for part in range({interface.parts}):", f"    {call}", f"return {OK}"]
    is_part = f"if part < 0 or part >= {interface.parts}: return {NO_SUCH_PART}"
    text = _printed(interface.short_name, names, whole)
    text += _printed(
        f"{interface.short_name}_part",
        (*names, "part"),
        [is_part, *checks, call, f"return {OK}"],
    )
    return text + _prepare(interface, planned)


def _checks(arguments: tuple[Argument, ...], scratch_bytes: int) -> list[str]:
    """What returns where an address cannot be used; scratch only if there is any."""
    needed = [one for one in arguments if one.operand or scratch_bytes]
    absent = " or ".join(f"{one.name} == 0" for one in needed)
    by_alignment: dict[int, list[str]] = {}
    for one in needed:
        by_alignment.setdefault(one.alignment, []).append(one.name)
    off = " or ".join(
        f"({' | '.join(names)}) % {alignment} != 0" for alignment, names in by_alignment.items()
    )
    return [f"if {absent}: return {NULL}", f"if {off}: return {MISALIGNED}"]


def _call(interface: Interface, planned: Plan) -> str:
    """The call of the driver for `part`."""
    names = {one.operand: one.name for one in interface.arguments if one.operand}
    nest, scratch = planned.nest, planned.scratch
    b_panels = f"scratch + {interface.scratch_of_a} + part * {scratch['B'].step}"
    given = Addresses(
        a=names[nest.operand("A").name],
        b="0" if planned.is_ahead else names[nest.operand("B").name],
        c=names["C"],
        bias=names.get("bias", "0"),
        a_panels=f"scratch + part * {scratch['A'].step}",
        b_panels=names["B"] if planned.is_ahead else b_panels,
    )
    count = len(edges(planned))
    parts = [f"word({BOUNDS}, part * {count} + {i})" for i in range(count)]
    return f"call_address({DRIVER}, {', '.join([*vars(given).values(), *parts])})"


def _prepare(interface: Interface, planned: Plan) -> str:
    """What makes constant weights ready; a copy where the kernel reads them as they are."""
    if interface.weights is None:
        return ""
    weights = interface.weights
    packed = next(one for one in interface.arguments if one.operand == "B")
    more = "" if planned.is_ahead else f", {interface.weight_bytes}"
    made = f"call_address({PREPARE if planned.is_ahead else COPY}, {weights.name}, packed{more})"
    return _printed(
        f"{interface.short_name}_prepare",
        (weights.name, "packed"),
        [*_checks((weights, packed), 0), made, f"return {OK}"],
    )
