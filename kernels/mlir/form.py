"""How MLIR's named ops arrange the dims that schedules speak of."""

from dataclasses import dataclass

from kernels.problem import Conv2d, Problem
from kernels.problem.iteration import IterationSpace, iteration_space


@dataclass(frozen=True)
class Form:
    """The linalg op of a problem, and where each dim sits in its iteration domain.

    Attributes:
        space: the dims and their roles.
        op: the named op in the payload.
        dims: its iteration dims in MLIR's order; after B is packed, `lane` follows them.
        tap_extents: the reduction dims that are not streamed (kh, kw), with their extents.
        panels_first: the outer permutation that puts the panels of packed B first.
        row_stride: distance of neighbouring rows of the register tile in A.
        starts_from_fill: whether C starts from zeros that a linalg.fill writes.
        zero: the element type's zero as an attribute.
        element_bytes: size of an element.
        body: the multiplication and the addition of the op's body.
    """

    space: IterationSpace
    op: str
    dims: tuple[str, ...]
    tap_extents: dict[str, int]
    panels_first: tuple[int, ...]
    body: tuple[str, str]
    zero: str
    element_bytes: int
    row_stride: int
    starts_from_fill: bool

    @property
    def taps(self) -> tuple[str, ...]:
        """The reduction dims that are not streamed, outermost first."""
        return tuple(self.tap_extents)

    @property
    def reductions(self) -> tuple[str, ...]:
        """The reduction dims, outermost first."""
        return (*self.taps, self.space.stream)


def form(problem: Problem) -> Form:
    """The form of `problem`."""
    space, element = iteration_space(problem), problem.element
    kind = "f" if element.is_float else "i"
    taps: dict[str, int] = {}
    op = "linalg.matmul"
    dims: tuple[str, ...] = ("m", "n", "k")
    panels_first: tuple[int, ...] = (1, 0)
    if isinstance(problem, Conv2d):
        op = "linalg.conv_2d_nhwc_hwcf"
        taps = {"kh": problem.kh, "kw": problem.kw}
        dims, panels_first = ("n", "oh", "ow", "co", *taps, "ci"), (3, 0, 1, 2)
    elif space.lead:
        op = "linalg.batch_matmul"
        dims, panels_first = ("batch", *dims), (0, 2, 1)
    return Form(
        space=space,
        op=op,
        dims=dims,
        tap_extents=taps,
        panels_first=panels_first,
        body=(f"arith.mul{kind}", f"arith.add{kind}"),
        zero=f"{'0.0' if element.is_float else '0'} : {element.name}",
        element_bytes=element.bytes,
        row_stride=problem.stride if isinstance(problem, Conv2d) else 1,
        starts_from_fill=not getattr(problem, "bias", False)
        and getattr(problem, "init", "zero") == "zero",
    )
