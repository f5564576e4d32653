"""Where the windows of an ONNX convolution or pooling lie along one axis of its input."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Window:
    """Windows along one axis.

    Attributes:
        size: of the input; None where it is not known.
        taps, stride, dilation: of a window.
        begin, end: elements of padding.
    """

    size: int | None
    taps: int
    stride: int = 1
    dilation: int = 1
    begin: int = 0
    end: int = 0

    @property
    def span(self) -> int:
        """Elements from the first tap to the last one."""
        return (self.taps - 1) * self.dilation + 1

    def outputs(self, *, rounds_up: bool = False) -> int:
        """How many windows there are; with `ceil_mode`, none that begins behind the input."""
        assert self.size is not None
        length = self.size + self.begin + self.end - self.span
        count = (-(-length // self.stride) if rounds_up else length // self.stride) + 1
        if rounds_up and (count - 1) * self.stride >= self.size + self.begin:
            count -= 1
        return count

    def needed_end(self, outputs: int) -> int:
        """The padding behind the input that so many windows reach into."""
        assert self.size is not None
        return max((outputs - 1) * self.stride + self.span - self.size - self.begin, 0)

    def counts(self, outputs: int, *, with_padding: bool) -> list[int]:
        """How many taps of each window lie on the input, or on that and its padding."""
        assert self.size is not None
        first = -self.begin if with_padding else 0
        last = self.size + (self.end if with_padding else 0)
        places = (
            [at * self.stride - self.begin + tap * self.dilation for tap in range(self.taps)]
            for at in range(outputs)
        )
        return [sum(first <= place < last for place in one) for one in places]


def same_padding(window: Window, *, is_upper: bool) -> tuple[int, int] | None:
    """The padding of `SAME_UPPER` or `SAME_LOWER`; None where the input's size decides."""
    if window.stride == 1:
        total = window.span - 1
    elif window.size is None:
        return None
    else:
        outputs = -(-window.size // window.stride)
        total = max((outputs - 1) * window.stride + window.span - window.size, 0)
    return halves(total, is_upper=is_upper)


def halves(total: int, *, is_upper: bool) -> tuple[int, int]:
    """Padding before and behind; of an odd number there is one more behind, if `is_upper`."""
    less = total // 2
    return (less, total - less) if is_upper else (total - less, less)
