"""Random problems for algorithms of fewer products, and random legal schedules by them."""

from hypothesis import assume
from hypothesis import strategies as st

from tests.kernels.strategies import is_legal
from tilewise.kernels.fast_algorithms import SIDES, STRIDES, outputs_for
from tilewise.kernels.problem import Conv2d, Matmul, Problem
from tilewise.kernels.schedule import (
    Nontemporal,
    Pack,
    Parallel,
    Prefetch,
    Register,
    Schedule,
    Step,
    Strassen,
    Tile,
    Unroll,
    Winograd,
    begin,
)
from tilewise.kernels.steps.winograd import outputs_of
from tilewise.kernels.target import Target

sides = st.sampled_from([1, 2, 3, 4, 5, 6, 8, 9, 13, 14])
FILTERS = [(kh, kw) for kh in (1, *SIDES) for kw in (1, *SIDES) if outputs_for((kh, kw))]
FORMS = [
    (*taps, stride) for stride in STRIDES for taps in FILTERS if outputs_for(taps, stride=stride)
]
ends = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["f32", "f64"]),
        "init": st.sampled_from(["zero", "accumulate"]),
        "bias": st.booleans(),
        "epilogue": st.sampled_from(["none", "relu", "relu6"]),
        "weights": st.sampled_from(["variable", "constant"]),
    }
)


@st.composite
def products(draw: st.DrawFn) -> tuple[Problem, Strassen]:
    """Matmuls and convolutions of single pixels that can be cut so often."""
    levels = draw(st.sampled_from([1, 2]))
    parts = 2**levels
    cols = parts * draw(st.sampled_from([1, 3, 8, 17, 35]))
    depth = parts * draw(st.sampled_from([1, 2, 5, 16, 19]))
    if draw(st.booleans()):
        is_transposed, rows = draw(st.booleans()), draw(st.integers(parts, 23))
        problem = Matmul(m=rows, n=cols, k=depth, transpose_b=is_transposed, **draw(ends))
        return problem, Strassen(levels)
    pixels = {"n": draw(st.integers(1, 3)), "h": draw(st.integers(2, 4)), "w": 3}
    if draw(st.booleans()):
        stride = draw(st.integers(2, 3))
        across = parts if levels > 1 else draw(st.integers(1, 4))
        down = draw(st.integers(1 if across > 1 else 2, 4))
        lines = [side * stride - draw(st.integers(0, stride - 1)) for side in (down, across)]
        pixels |= {"h": lines[0], "w": lines[1], "stride": stride}
    return Conv2d(ci=depth, co=cols, kh=1, kw=1, **pixels, **draw(ends)), Strassen(levels)


@st.composite
def filtered(draw: st.DrawFn) -> tuple[Conv2d, Winograd]:
    """Convolutions of every filter with tiles, and every size and pad that leave an output."""
    pad = draw(st.integers(0, 3))
    kh, kw, stride = draw(st.sampled_from([(3, 3, 1), (3, 3, 2), *FORMS]))
    problem = Conv2d(
        layout=draw(st.sampled_from(["nhwc_hwcf", "nchw_fchw"])),
        n=draw(st.integers(1, 3)),
        h=max(1, kh - 2 * pad, draw(sides)),
        w=max(1, kw - 2 * pad, draw(sides)),
        ci=draw(st.sampled_from([1, 3, 8, 16, 17, 32, 40])),
        co=draw(st.sampled_from([1, 5, 16, 33, 64, 70])),
        kh=kh,
        kw=kw,
        pad=pad,
        stride=stride,
        **draw(ends),
    )
    return problem, Winograd(draw(st.sampled_from(outputs_of(problem))))


@st.composite
def of_fewer_products(draw: st.DrawFn, target: Target) -> tuple[Problem, Schedule]:
    """A problem with a legal schedule of every structure by one of the algorithms."""
    problem, algorithm = draw(products() | filtered())
    nest, lanes = begin(problem, algorithm), target.lanes(problem.element.name)
    rows, cols = draw(st.integers(1, 8)), lanes * draw(st.integers(1, 3))
    steps: list[Step] = [algorithm]
    for dim, unit in (("t", rows), (nest.col, cols)):
        tiles = -(-nest.dim(dim).extent // unit)
        if tiles > 1 and draw(st.booleans()):
            steps.append(Parallel(dim, draw(st.integers(2, min(3, tiles)))))
    steps += [Tile(nest.col, cols * draw(st.integers(1, 2)))] if draw(st.booleans()) else []
    steps += [Pack("B")]
    can_fetch = problem.has_constant_weights or isinstance(algorithm, Strassen)
    steps += [Prefetch("B")] if can_fetch and draw(st.booleans()) else []
    steps += [Tile("t", rows * draw(st.integers(1, 3)))] if draw(st.booleans()) else []
    steps += [Pack("A"), Register(rows, cols)]
    steps += [Unroll(draw(st.integers(2, 5)))] if draw(st.booleans()) else []
    if isinstance(algorithm, Winograd) and isinstance(problem, Conv2d):
        is_whole = problem.co % lanes == 0 and not problem.has_channels_first
        steps += [Nontemporal()] if is_whole and draw(st.booleans()) else []
    schedule = Schedule(tuple(steps))
    assume(is_legal(problem, schedule))  # a block may be cut after the part of a thread is smaller
    return problem, schedule
