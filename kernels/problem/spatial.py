"""How a convolution's window moves over its image: values of `stride`, `dilation` and `pad`."""

from typing import NamedTuple

from tilewise.kernels.errors import ProblemError
from tilewise.kernels.quoting import quoted

Sizes = tuple[int, ...]
FORMS = {"stride": "N or HxW", "dilation": "N or HxW", "pad": "N, HxW or TOPxLEFTxBOTTOMxRIGHT"}
_LEAST = {"stride": 1, "dilation": 1, "pad": 0}
_MOST_DIGITS = 9


class Pads(NamedTuple):
    """Zeros around an image, in pixels."""

    top: int = 0
    left: int = 0
    bottom: int = 0
    right: int = 0

    @property
    def low(self) -> tuple[int, int]:
        """Return those before the first line and pixel."""
        return self.top, self.left

    @property
    def high(self) -> tuple[int, int]:
        """Return those behind the last line and pixel."""
        return self.bottom, self.right


def sizes_of(name: str, value: object, operation: str) -> Sizes:
    """Return the numbers of a value: one, of rows and columns, or of all four sides.

    Raises:
        ProblemError: it has another form.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        numbers: Sizes = (value,)
    else:
        parts = value.split("x") if isinstance(value, str) else []
        is_number = [p.isascii() and p.isdigit() and len(p) <= _MOST_DIGITS for p in parts]
        numbers = tuple(map(int, parts)) if parts and all(is_number) else ()
    counts = (1, 2, 4) if name == "pad" else (1, 2)
    if len(numbers) not in counts or min(numbers) < _LEAST[name]:
        raise ProblemError(
            f"{operation}: {name}={quoted(value)} is not {FORMS[name]} of numbers from "
            f"{_LEAST[name]} on",
            name,
        )
    return numbers


def pair(value: object) -> tuple[int, int]:
    """Return the numbers of rows and columns of a valid stride or dilation."""
    first, last = (value, value) if isinstance(value, int) else map(int, str(value).split("x"))
    return first, last


def pads(value: object) -> Pads:
    """Return the sides of a valid pad."""
    if isinstance(value, int):
        return Pads(*(value,) * 4)
    numbers = tuple(map(int, str(value).split("x")))
    return Pads(*(numbers * 2 if len(numbers) == 2 else numbers))


def canonical(numbers: Sizes) -> int | str:
    """Return the shortest value of these numbers."""
    if len(set(numbers)) == 1:
        return numbers[0]
    if len(numbers) == 4 and numbers[:2] == numbers[2:]:
        numbers = numbers[:2]
    return "x".join(map(str, numbers))
