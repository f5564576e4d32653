"""The functions of an object that C calls, in the language of macro-kernels.

Each checks its arguments, which costs a few nanoseconds, and runs the macro-kernel on one part of
the work or on all of them. The macro-kernel takes addresses; its sizes are known (`known_sizes`).
For a range of problems it also takes those that vary, from the row of a table that the size
chooses.
"""

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from tilewise.kernels.native.export.description import macro_kernel_addresses
from tilewise.kernels.native.export.source import (
    body_of,
    edges,
    edges_of_parts,
    lines_of,
    parameters_used,
    prepared,
)
from tilewise.kernels.native.macrokernel.parameters import PARTS, Addresses, names_of
from tilewise.kernels.native.microkernels.abi import FUNCTIONS
from tilewise.kernels.native.objects.interface import (
    MISALIGNED,
    NO_SUCH_PART,
    NO_SUCH_SIZE,
    NULL,
    OK,
    Interface,
    Pointer,
    SizeArgument,
    scratch_of,
)
from tilewise.kernels.native.plan import KernelPlan

MACRO_KERNEL, PREPARE, COPY, TABLE = "macro_kernel", "prepare", "copy_bytes", "table"
_BARRIER = "wait_for_all"


@dataclass(frozen=True)
class Variant:
    """A kernel in an object.

    Attributes:
        planned: the kernel.
        varying: its sizes that the macro-kernel takes as arguments; others are constants.
        suffix: of the names of its functions, where the object has several kernels.
        packed_at: where its constant weights begin in the memory for those of all kernels.
    """

    planned: KernelPlan
    varying: tuple[str, ...] = ()
    suffix: str = ""
    packed_at: int = 0

    @property
    def macro_kernel(self) -> str:
        """The name of the macro-kernel."""
        return f"{MACRO_KERNEL}{self.suffix}"

    @property
    def prepare(self) -> str:
        """The name of the function that packs constant weights ahead."""
        return f"{PREPARE}{self.suffix}"

    @property
    def words(self) -> tuple[str, ...]:
        """The arguments of the macro-kernel."""
        return (*names_of(Addresses), *self.varying, *edges(self.planned))


@dataclass(frozen=True)
class Entries:
    """The functions and the table of an object that other code uses.

    Attributes:
        name: of the module.
        functions: the names of the exported functions.
        text: the functions in the language of macro-kernels. They call macro-kernels, `prepare`
            and `COPY`, and read `TABLE`.
        table: the words of `TABLE`.
        copies: whether they call `COPY`.
        has_supported: whether `NAME_supported` is one of them.
    """

    name: str
    functions: tuple[str, ...]
    text: str
    table: tuple[int, ...] = ()
    copies: bool = False
    has_supported: bool = True

    @classmethod
    def of(
        cls, interface: Interface, variants: Sequence[Variant], rows: Sequence[tuple[int, ...]] = ()
    ) -> "Entries":
        """Return what C calls of an object.

        Args:
            interface: its functions.
            variants: its kernels; one, unless it serves a range of problems.
            rows: for each size of a range the position of its variant, the values of the variant's
                varying sizes, and the bounds of its parts.
        """
        name, arguments = interface.short_name, interface.arguments
        names = tuple(argument.name for argument in arguments)
        checks, table = _checks(arguments, interface.scratch_bytes), _ends(variants[0])
        call = [_call(interface, variants[0], "")]
        if interface.sizes:
            names += tuple(size.name for size in interface.sizes)
            width = max(map(len, rows))
            table = tuple(word for row in rows for word in (*row, *[0] * (width - len(row))))
            checks += _row_of_size(interface.sizes, width)
            call = []
            for at, variant in enumerate(variants):
                call += [f"if variant == {at}:", f"    {_call(interface, variant, 'row + 1 + ')}"]
        parts = f"range({interface.parts})"
        whole = [*checks, f"for part in {parts}:", *(f"    {line}" for line in call)]
        is_part = f"if part < 0 or part >= {interface.parts}: return {NO_SUCH_PART}"
        text = _printed(name, names, [*whole, f"return {OK}"])
        part = [is_part, *checks, *call, f"return {OK}"]
        text += _printed(f"{name}_part", (*names, "part"), part)
        copies = any(interface.weights and not one.planned.is_ahead for one in variants)
        if interface.weights:
            text += _prepare_text(interface, variants)
        return cls(interface.name, interface.functions, text, table, copies)


def macro_kernel_text(variant: Variant) -> str:
    """Return the printed macro-kernel, and what packs ahead, as functions of addresses.

    Parts of a parallel macro-kernel do not wait for each other: the caller knows when they end.
    """
    planned = variant.planned
    text = _function(variant, MACRO_KERNEL, variant.macro_kernel, variant.words)
    if planned.is_ahead:
        text += _function(variant, PREPARE, variant.prepare, prepared(planned))
    return text


def known_sizes(variant: Variant) -> dict[str, int]:
    """Return the macro-kernel's parameters that are not arguments, and 0 for functions it lacks."""
    planned = variant.planned
    known = {**dict.fromkeys(FUNCTIONS, 0), **planned.sizes, PARTS: len(planned.nest.parts)}
    return {name: value for name, value in known.items() if name not in variant.varying}


def _function(variant: Variant, printed: str, name: str, given: tuple[str, ...]) -> str:
    body = [node for node in body_of(variant.planned, printed) if not _is_barrier(node)]
    parameters_used(variant.planned, body, {*given, *known_sizes(variant)})
    return _printed(name, given, lines_of(body))


def _is_barrier(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and ast.unparse(node.value).startswith(_BARRIER)


def _printed(name: str, given: tuple[str, ...], lines: list[str]) -> str:
    body = "".join(f"    {line}\n" for line in lines)
    return f"@njit\ndef {name}({', '.join(given)}):\n{body}\n\n"


def _ends(variant: Variant) -> tuple[int, ...]:
    """Return where each part of the one kernel of an object begins and ends."""
    planned = variant.planned
    return tuple(e for part in edges_of_parts(planned) for e in part) if edges(planned) else ()


def _row_of_size(sizes: Sequence[SizeArgument], width: int) -> list[str]:
    """What finds the row of a size in the table, or returns where there is none."""
    lines, row = list[str](), "0"
    for size in sizes:
        name, at = size.name, f"({size.name} - {size.first})"
        lines.append(f"if {name} < {size.first} or {name} > {size.last}: return {NO_SUCH_SIZE}")
        if size.step > 1:
            lines.append(f"if {at} % {size.step} != 0: return {NO_SUCH_SIZE}")
            at = f"{at} // {size.step}"
        row = f"({row} * {len(size.values)} + {at})"
    return [*lines, f"row = {row} * {width}", f"variant = word({TABLE}, row)"]


def _prepare_text(interface: Interface, variants: Sequence[Variant]) -> str:
    """What makes constant weights ready for all variants: once in each format."""
    packed = next(one for one in interface.arguments if one.operand == "B")
    weights = tuple(one.name for one in interface.weights)
    lines = _checks((*interface.weights, packed), 0)
    for at, variant in {one.packed_at: one for one in variants}.items():
        given = ", ".join((*weights, f"packed + {at}"))
        of_copy = f"{COPY}, {given}, {interface.weight_bytes}"
        made = f"{variant.prepare}, {given}" if variant.planned.is_ahead else of_copy
        lines.append(f"call_address({made})")
    given_names = (*weights, "packed")
    return _printed(f"{interface.short_name}_prepare", given_names, [*lines, f"return {OK}"])


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


def _call(interface: Interface, variant: Variant, row: str) -> str:
    """Call a macro-kernel for `part`; its varying sizes and its bounds are words from `row` on."""
    planned = variant.planned
    scratch, count = planned.scratch, len(edges(planned))
    of_a, of_c = scratch_of(planned, "A"), scratch_of(planned, "C")
    names = {one.operand: one.name for one in interface.arguments if one.operand}
    if interface.weights:
        names["B"] += f" + {variant.packed_at}"
    given = macro_kernel_addresses(
        planned,
        names,
        a_panels=f"scratch + part * {scratch['A'].step}",
        b_panels=f"scratch + {of_a + of_c} + part * {scratch['B'].step}",
        c_sums=f"scratch + {of_a} + part * {scratch['C'].step}",
    )
    sizes = len(variant.varying)
    words = [f"word({TABLE}, {row}{i})" for i in range(sizes)]
    words += [f"word({TABLE}, {row}{sizes} + part * {count} + {i})" for i in range(count)]
    return f"call_address({variant.macro_kernel}, {', '.join([*vars(given).values(), *words])})"
