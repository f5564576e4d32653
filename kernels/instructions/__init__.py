"""Instructions that multiply and add: one declaration each, and the choice among them."""

from tilewise.kernels.instructions.declaration import Form, Instruction
from tilewise.kernels.instructions.registry import (
    NAMES,
    WITH_CHOICE,
    chosen,
    instructions,
    known,
    known_instruction,
    plain,
    register,
    registered,
    usable,
)

__all__ = [
    "NAMES",
    "WITH_CHOICE",
    "Form",
    "Instruction",
    "chosen",
    "instructions",
    "known",
    "known_instruction",
    "plain",
    "register",
    "registered",
    "usable",
]
