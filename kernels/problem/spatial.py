"""How a convolution's window moves over its image: values of `stride`, `dilation` and `pad`."""

from tilewise.kernels.errors import ProblemError
from tilewise.kernels.quoting import quoted

Sizes = tuple[int, ...]
FORMS = ("stride", "dilation", "pad")
_SIDES = {"hw": "TOPxLEFTxBOTTOMxRIGHT", "dhw": "FRONTxTOPxLEFTxBACKxBOTTOMxRIGHT"}
_LEAST = {"stride": 1, "dilation": 1, "pad": 0}
_MOST_DIGITS = 9


class Pads(tuple[int, ...]):
    """Zeros around an image, in pixels: before the first one along each axis, then behind."""

    @property
    def low(self) -> Sizes:
        """Return those before the first slice, line and pixel."""
        return self[: len(self) // 2]

    @property
    def high(self) -> Sizes:
        """Return those behind the last slice, line and pixel."""
        return self[len(self) // 2 :]

    @property
    def top(self) -> int:
        """Return those before the first line."""
        return self.low[-2]

    @property
    def left(self) -> int:
        """Return those before the first pixel of a line."""
        return self.low[-1]

    @property
    def bottom(self) -> int:
        """Return those behind the last line."""
        return self.high[-2]

    @property
    def right(self) -> int:
        """Return those behind the last pixel of a line."""
        return self.high[-1]


def sizes_of(name: str, value: object, operation: str, axes: str) -> Sizes:
    """Return the numbers of a value: one, one for each of the spatial axes, or of all sides.

    Raises:
        ProblemError: it has another form.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        numbers: Sizes = (value,)
    else:
        parts = value.split("x") if isinstance(value, str) else []
        is_number = [p.isascii() and p.isdigit() and len(p) <= _MOST_DIGITS for p in parts]
        numbers = tuple(map(int, parts)) if parts and all(is_number) else ()
    counts = [1, len(axes), *([2 * len(axes)] if name == "pad" else [])]
    if len(numbers) not in counts or min(numbers) < _LEAST[name]:
        raise ProblemError(
            f"{operation}: {name}={quoted(value)} is not {_form(name, axes)} of numbers from "
            f"{_LEAST[name]} on",
            name,
        )
    return numbers


def _form(name: str, axes: str) -> str:
    each = "x".join(axes.upper())
    return f"N, {each} or {_SIDES[axes]}" if name == "pad" else f"N or {each}"


def spread(value: object, axes: int) -> Sizes:
    """Return the number of each axis of a valid stride or dilation."""
    return (value,) * axes if isinstance(value, int) else tuple(map(int, str(value).split("x")))


def pads(value: object, axes: int) -> Pads:
    """Return the sides of a valid pad."""
    numbers = spread(value, axes)
    return Pads(numbers if len(numbers) == 2 * axes else numbers * 2)


def canonical(numbers: Sizes) -> int | str:
    """Return the shortest value of these numbers."""
    if len(set(numbers)) == 1:
        return numbers[0]
    half = len(numbers) // 2
    if len(numbers) in (4, 6) and numbers[:half] == numbers[half:]:
        numbers = numbers[:half]
    return "x".join(map(str, numbers))
