"""What becomes of a module that is packed as a whole: its script, and what is left to move."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Left:
    """An op that stays as it is.

    Attributes:
        op: its name.
        where: function, location and op.
        reason: why.
    """

    op: str
    where: str
    reason: str


@dataclass(frozen=True)
class Remaining:
    """A pack or an unpack that the script leaves.

    Attributes:
        op: `pack` or `unpack`.
        where: function and number of the transformed module.
        types: from what to what.
        of_weights: whether it is done once, when the model is loaded.
        is_reshape: whether every element stays where it lies.
    """

    op: str
    where: str
    types: str
    of_weights: bool
    is_reshape: bool
