"""What a user gave, as a message shows it: printable, and short whatever it was."""

from reprlib import Repr

_MOST_DIGITS = 40


class _Short(Repr):
    """Abbreviates before it prints: deep nesting and huge integers cannot be printed whole."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = 80

    def repr_int(self, x: int, _level: int) -> str:
        """All digits of a number that a person would write."""
        if abs(x) < 10**_MOST_DIGITS:
            return repr(x)
        return f"<{'negative ' if x < 0 else ''}integer of {x.bit_length()} bits>"


_short = _Short()


def quoted(value: object) -> str:
    """Like `repr`, with the middle of long values left out; never fails for JSON values."""
    return _short.repr(value)
