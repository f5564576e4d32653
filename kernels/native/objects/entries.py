"""The functions of an object that C calls, in the language of drivers.

Each checks what it is given, which costs a few nanoseconds, and runs the driver on one part of the
work or on all of them. The driver takes addresses alone: its sizes are known (`known_sizes`).
"""

import ast
from dataclasses import dataclass

from tilewise.kernels.native.export.description import driver_addresses
from tilewise.kernels.native.export.source import (
    body_of,
    edges,
    lines_of,
    parameters_used,
    prepared,
)
from tilewise.kernels.native.macrokernel.parameters import PARTS, Addresses, names_of
from tilewise.kernels.native.microkernels.abi import FUNCTIONS
from tilewise.kernels.native.objects.interface import (
    MISALIGNED,
    NO_SUCH_PART,
    NULL,
    OK,
    Interface,
    Pointer,
)
from tilewise.kernels.native.plan import KernelPlan

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
    def of(cls, interface: Interface, planned: KernelPlan) -> "Entries":
        """Return what C calls of an object."""
        name, arguments = interface.short_name, interface.arguments
        names = tuple(argument.name for argument in arguments)
        checks = _checks(arguments, interface.scratch_bytes)
        call = _call(interface, planned)
        whole = [*checks, f"for part in range({interface.parts}):", f"    {call}", f"return {OK}"]
        is_part = f"if part < 0 or part >= {interface.parts}: return {NO_SUCH_PART}"
        part = [is_part, *checks, call, f"return {OK}"]
        text = _printed(name, names, whole) + _printed(f"{name}_part", (*names, "part"), part)
        copies = bool(interface.weights) and not planned.is_ahead
        if interface.weights:
            packed = next(one for one in arguments if one.operand == "B")
            given = (*(one.name for one in interface.weights), "packed")
            of_copy = f"{COPY}, {', '.join(given)}, {interface.weight_bytes}"
            of_pack = f"{PREPARE}, {', '.join(given)}"
            prepare = [
                *_checks((*interface.weights, packed), 0),
                f"call_address({of_copy if copies else of_pack})",
                f"return {OK}",
            ]
            text += _printed(f"{name}_prepare", given, prepare)
        return cls(interface.name, interface.functions, text, copies)


def driver_text(planned: KernelPlan) -> str:
    """Return the printed driver, and what packs ahead, as functions of addresses.

    Parts of a parallel driver do not wait for each other: whoever calls them knows when they end.
    """
    text = _function(planned, DRIVER, (*names_of(Addresses), *edges(planned)))
    return text + (_function(planned, PREPARE, prepared(planned)) if planned.is_ahead else "")


def known_sizes(planned: KernelPlan) -> dict[str, int]:
    """Return the driver's parameters that are not addresses, and 0 for functions it lacks."""
    absent = dict.fromkeys(FUNCTIONS, 0)
    return {**absent, **planned.sizes, PARTS: len(planned.nest.parts)}


def _function(planned: KernelPlan, name: str, given: tuple[str, ...]) -> str:
    body = [node for node in body_of(planned, name) if not _is_barrier(node)]
    parameters_used(planned, body, {*given, *known_sizes(planned)})
    return _printed(name, given, lines_of(body))


def _is_barrier(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and ast.unparse(node.value).startswith(_BARRIER)


def _printed(name: str, given: tuple[str, ...], lines: list[str]) -> str:
    body = "".join(f"    {line}\n" for line in lines)
    return f"@njit\ndef {name}({', '.join(given)}):\n{body}\n\n"


def _checks(arguments: tuple[Pointer, ...], scratch_bytes: int) -> list[str]:
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


def _call(interface: Interface, planned: KernelPlan) -> str:
    """The call of the driver for `part`."""
    scratch, count = planned.scratch, len(edges(planned))
    before_b = interface.scratch_of_a + interface.scratch_of_c
    given = driver_addresses(
        planned,
        {one.operand: one.name for one in interface.arguments if one.operand},
        a_panels=f"scratch + part * {scratch['A'].step}",
        b_panels=f"scratch + {before_b} + part * {scratch['B'].step}",
        c_sums=f"scratch + {interface.scratch_of_a} + part * {scratch['C'].step}",
    )
    parts = [f"word({BOUNDS}, part * {count} + {i})" for i in range(count)]
    return f"call_address({DRIVER}, {', '.join([*vars(given).values(), *parts])})"
