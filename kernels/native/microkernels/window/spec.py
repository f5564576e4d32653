"""What the code of a window micro-kernel depends on: a convolution of few channels in a group."""

from dataclasses import dataclass, replace

from tilewise.kernels.arithmetic import Arithmetic, depthwise_vector
from tilewise.kernels.errors import LoweringError
from tilewise.kernels.native.microkernels.abi import epilogue_flags
from tilewise.kernels.nest import LoopKind, Nest
from tilewise.kernels.problem import Conv2d
from tilewise.kernels.target.model import Target


@dataclass(frozen=True)
class Axis:
    """One direction of the image, all in pixels.

    Attributes:
        extent: of the image, without padding.
        outputs: of the result.
        taps: of the filter.
        stride, dilation, pad: of the convolution.
    """

    extent: int
    outputs: int
    taps: int
    stride: int
    dilation: int
    pad: int

    def offset(self, output: int, tap: int) -> int:
        """Where an output finds a tap, from where output 0 finds its first one."""
        return output * self.stride + tap * self.dilation

    def readers(self, outputs: int) -> dict[int, list[tuple[int, int]]]:
        """What the first so many outputs read: by offset, which of them reads it for which tap."""
        found: dict[int, list[tuple[int, int]]] = {}
        for output in range(outputs):
            for tap in range(self.taps):
                found.setdefault(self.offset(output, tap), []).append((output, tap))
        return dict(sorted(found.items()))

    def exists(self, output: int, offset: int) -> bool:
        """Whether the image has the pixel at an offset from an output's first tap."""
        return 0 <= output * self.stride - self.pad + offset < self.extent


@dataclass(frozen=True)
class WindowSpec:
    """All that the code of a window micro-kernel depends on.

    Attributes:
        how: the arithmetic; elements are widened as they are loaded.
        lanes: elements of an accumulator vector.
        fits: whether one register holds such a vector.
        unit: columns of C that a whole vector has.
        epilogue: which of `ADD_BIAS`, `RELU` and `CEILING` every call does.
        down, across: the image's lines, and its columns.
        inputs, outputs: channels of a group.
        image_channels, channels: of the image, and of the result.
        planes: whether each channel is a plane of its own (`nchw_fchw`).
        lines: of the result that a register tile has.
        pixels: of each of these lines; 1 in planes, where `vectors` run along a line.
        vectors: of channels, or of a plane's line.
        registers: vector registers of the target.
        cols_outside: whether a call walks columns of C outside of its rows.
        past_caches: whether the result is written past the caches.
    """

    how: Arithmetic
    lanes: int
    fits: bool
    unit: int
    epilogue: int
    down: Axis
    across: Axis
    inputs: int
    outputs: int
    image_channels: int
    channels: int
    planes: bool
    lines: int
    pixels: int
    vectors: int
    registers: int
    cols_outside: bool
    past_caches: bool = False

    @property
    def span(self) -> int:
        """Elements of C in a vector: channels of whole groups, or pixels; those that there are."""
        return min(self.unit, self.across.outputs if self.planes else self.channels)

    @property
    def cols(self) -> int:
        """Columns of the register tile, in elements of C."""
        return self.vectors * self.unit

    @property
    def channel_step(self) -> int:
        """Channels that tiles have at once."""
        return 1 if self.planes else self.vectors * self.span

    @property
    def has_whole_vectors(self) -> bool:
        """Whether every vector of the result lies at a multiple of its size, if the first does."""
        row = self.across.outputs if self.planes else self.channels
        return self.span == self.lanes and row % self.lanes == 0

    @property
    def taps(self) -> int:
        """Of the filter."""
        return self.down.taps * self.across.taps

    @property
    def sums(self) -> int:
        """Accumulators of a register tile."""
        return self.lines * self.pixels * self.vectors

    def steps(self, multiply_adds: int) -> int:
        """Taps that so many vector multiply-adds take."""
        return multiply_adds // self.sums


def window_spec(nest: Nest, target: Target, how: Arithmetic) -> WindowSpec:
    """Return the window micro-kernel that a nest asks for.

    Raises:
        LoweringError: register columns that are no whole vectors of the target, or a result that
            is to be written past the caches and has vectors that are not whole.
    """
    problem, tile = nest.problem, nest.tile
    assert isinstance(problem, Conv2d)
    shared = (problem.stride, problem.dilation, problem.pad)
    planes = problem.has_channels_first
    vector = depthwise_vector(problem, target)
    spec = WindowSpec(
        how=how,
        lanes=vector.lanes,
        fits=vector.lanes <= target.lanes(problem.element.name),
        unit=vector.columns,
        epilogue=epilogue_flags(nest.store),
        down=Axis(problem.h, problem.oh, problem.kh, *shared),
        across=Axis(problem.w, problem.ow, problem.kw, *shared),
        inputs=problem.ci // problem.groups,
        outputs=problem.co // problem.groups,
        image_channels=problem.ci,
        channels=problem.co,
        planes=planes,
        lines=tile.rows if planes else tile.lines,
        pixels=1 if planes else tile.rows,
        vectors=1,
        registers=target.vector_registers,
        cols_outside=nest.loops_of(LoopKind.MICRO)[0].dim == nest.col,
    )
    vectors, rest = divmod(tile.cols, spec.unit)
    if rest:
        raise LoweringError(
            f"step register: cols={tile.cols} is not a multiple of the {spec.unit} "
            f"{problem.element.name} elements that a vector of {target.cpu} holds here"
        )
    if nest.store.is_nontemporal and not spec.has_whole_vectors:
        raise LoweringError(
            f"step nontemporal: vectors of {spec.lanes} do not divide the rows of C of {problem}; "
            "drop the step"
        )
    return replace(spec, vectors=vectors)
