"""The instructions that there are, and which of them a type, a target and a form have.

bf16 and i8 can be multiplied in several ways: by a dot product of neighbouring elements, or widened
and multiplied as f32, i32 or pairs of i16. Which is faster depends on the processor, not on its
features: `vdpbf16ps` has twice the rate of f32 FMA on Zen 5, and half of it on Emerald Rapids. So
the choice is made by rates that were measured on the machine (`Target.rates`), or, where there are
none, by what declarations and the table of cores say. A schedule records the choice as a step
(`tilewise.kernels.steps.InstructionChoice`), so that its kernel is the same on every machine.
"""

from collections.abc import Iterator, KeysView
from contextlib import contextmanager

from tilewise.kernels.instructions.declaration import DECLARED, UNITS, Form, Instruction
from tilewise.kernels.problem.keys import FACTORS, SMALL_WEIGHTS, WEIGHTS
from tilewise.kernels.target.model import Target

_CODES = {WEIGHTS: "u8*i8", SMALL_WEIGHTS: "u4*i8"}  # and slices of the float
_declared: dict[str, Instruction] = {}

NAMES: KeysView[str] = _declared.keys()
"""The names of all instructions."""

WITH_CHOICE: set[str] = set()
"""The types that some processor has several instructions for."""


def register(*instructions: Instruction) -> None:
    """Add instructions, which every search, kernel and stored schedule can use from now on.

    Raises:
        ValueError: a name that is taken, or that begins with no vector unit.
    """
    added = {one.name: one for one in instructions}
    for one in instructions:
        is_taken = one.name in _declared or added[one.name] is not one
        if is_taken or one.unit not in UNITS:
            raise ValueError(
                f"instruction {one.name!r}: the name is taken or does not begin with one of "
                f"{', '.join(UNITS)}; give another"
            )
    _declared.update(added)
    _find_choices()


@contextmanager
def registered(*instructions: Instruction) -> Iterator[None]:
    """Add instructions for a while."""
    register(*instructions)
    try:
        yield
    finally:
        for one in instructions:
            del _declared[one.name]
        _find_choices()


def _find_choices() -> None:
    """Find types with instructions of several names in one form, none of which replaces another."""
    several = {
        dtype
        for dtype in FACTORS
        for form in Form
        if len({one.mnemonic for one in _fitting(dtype, form) if not one.unless}) > 1
    }
    WITH_CHOICE.clear()
    WITH_CHOICE.update(several)


def known(dtype: str, split: bool, accuracy: str = "") -> tuple[str, ...]:
    """Return the instructions that some target has for a type and a form of the reduction."""
    forms = (Form.SPLIT,) if split else (Form.OUTER_PRODUCT, Form.TILES)
    return tuple(one.name for form in forms for one in _fitting(dtype, form, accuracy))


def known_instruction(name: str) -> Instruction:
    """Return the instruction of a name in `NAMES`."""
    return _declared[name]


def usable(dtype: str, target: Target, split: bool = False) -> tuple[str, ...]:
    """Return the instructions that a target has for a type, that with the most products first."""
    form = Form.SPLIT if split else Form.OUTER_PRODUCT
    return tuple(one.name for one in instructions(dtype, target, form))


def plain(dtype: str, target: Target) -> str:
    """Return the instruction that multiplies and adds single elements, widened if need be."""
    return instructions(dtype, target, Form.DEPTHWISE)[0].name


def instructions(dtype: str, target: Target, form: Form, accuracy: str = "") -> list[Instruction]:
    """Return what a target has for a type and a form, that with the most products first.

    Those of an accuracy of their own are among them where it is given.
    """
    units, has = _units(target), target.features
    return [
        one
        for one in _fitting(dtype, form, accuracy)
        if one.unit in units and one.features <= has and not one.unless & has
    ]


def chosen(dtype: str, target: Target, form: Form = Form.OUTER_PRODUCT, accuracy: str = "") -> str:
    """Return the fastest instruction for a type: by measured rates, else by declared slots.

    Of equally fast ones, the one with the most products is chosen: its factors take less memory.
    """
    found, rates = instructions(dtype, target, form, accuracy), dict(target.rates)
    if not rates.keys() >= {one.name for one in found}:
        rates = {one.name: one.products / one.slots_on(target.core) for one in found}
    return max((one.name for one in found), key=lambda name: rates[name])


def _fitting(dtype: str, form: Form, accuracy: str = "") -> list[Instruction]:
    if dtype in _CODES:
        dtype = "bf16" if form is Form.TILES else _CODES[dtype]
    if dtype == "i16" and form not in (Form.OUTER_PRODUCT, Form.DEPTHWISE):
        return []  # only these subtract zero points
    found = [
        one
        for one in _declared.values()
        if form in one.forms and one.takes(dtype) and one.accuracy in ("", accuracy)
    ]
    return sorted(found, key=lambda one: -one.products)


def _units(target: Target) -> set[str]:
    """Return the units whose vectors or tiles are as wide as the target's."""
    is_arm = bool(target.features & {"neon", "fp-armv8"})
    return {
        unit
        for unit, size in UNITS.items()
        if size == target.vector_bytes and unit.startswith("arm.") == is_arm
    }


register(*DECLARED)
