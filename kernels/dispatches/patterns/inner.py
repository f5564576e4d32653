"""An op of a body with its constants, as patterns need it and libraries make it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Inner:
    """An op of a body with the constants that it reads from outside, moved into the body.

    IREE's matcher compares a body only if all that it reads from outside is an operand of some op
    of the pattern. So a library puts a call of a function in the op's place, and inlines that.

    Attributes:
        name: the function's symbol.
        arguments: its types, by names.
        text: the constants, then the op.
        result: what the op makes.
        type: of that.
    """

    name: str
    arguments: dict[str, str]
    text: str
    result: str
    type: str

    @property
    def signature(self) -> str:
        """The function's arguments with their types."""
        return ", ".join(f"{name}: {kind}" for name, kind in self.arguments.items())
