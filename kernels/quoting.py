"""Values as messages and tables show them: printable, short, and durations with their unit."""

import re
from collections.abc import Container, Iterable, Sequence
from reprlib import Repr

_MOST_DIGITS = 40
_LONGEST = 200
_MOST_CHARACTERS = 2000
_CREDENTIALS = re.compile(r"://.*@", re.DOTALL)


class _Short(Repr):
    """Abbreviates before it prints: deep nesting and huge integers cannot be printed whole."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = _LONGEST

    def repr_int(self, x: int, _level: int) -> str:
        """Return all digits of a number that a person would write."""
        if abs(x) < 10**_MOST_DIGITS:
            return repr(x)
        return f"<{'negative ' if x < 0 else ''}integer of {x.bit_length()} bits>"


_short = _Short()


def quoted(value: object) -> str:
    """Return a `repr` with the middle of long values left out; never fails for JSON values."""
    text = _short.repr(value)
    if len(text) <= _LONGEST:
        return text
    return f"{text[: _LONGEST // 2]}...{text[-_LONGEST // 2 :]}"


def one_line(text: object) -> str:
    """Return a message on one line without control characters, cut off where it is very long."""
    line = " ".join(str(text).split())
    if len(line) > _MOST_CHARACTERS:
        line = f"{line[:_MOST_CHARACTERS]}..."
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)


def suggestion(given: str, known: Iterable[str]) -> str:
    """Return ` (did you mean X?)`, where X is the nearest known name; empty if none is near."""
    from difflib import get_close_matches  # only errors take it

    names = {name.casefold(): name for name in known}
    near = get_close_matches(given[:_LONGEST].casefold(), names, n=1)
    return f" (did you mean {names[near[0]]}?)" if near else ""


def without_password(url: str) -> str:
    """Return a text that may be a URL, without what stands before an `@` in it."""
    return _CREDENTIALS.sub("://***@", url)


_UNITS = ((1.0, 1e3, "ns"), (1e4, 1.0, "us"), (1e7, 1e-3, "ms"))
_DIGITS = {"ns": 1, "us": 1, "ms": 2, "s": 2}


def duration(time_us: float | None) -> str:
    """Return a time with its unit: `13.6 ns`, `7.4 us`, `13.60 ms`, `12.00 s`; `-` for none.

    Microseconds go up to 10,000 of them, as milliseconds do.
    """
    if time_us is None:
        return "-"
    factor, unit = 1e-6, "s"
    for below, by, name in _UNITS:
        if abs(time_us) < below:
            factor, unit = by, name
            break
    return f"{time_us * factor:.{_DIGITS[unit]}f} {unit}"


def columns(rows: Sequence[Sequence[str]], right: Container[int] = ()) -> list[str]:
    """Align the cells of rows; those of the columns in `right` end at one place."""
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
