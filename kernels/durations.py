"""Durations as text, in the unit that their magnitude asks for."""

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
