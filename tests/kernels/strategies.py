"""Random small problems and random legal schedules for them, also by fewer products."""

from dataclasses import replace

from hypothesis import assume
from hypothesis import strategies as st

from tilewise.kernels.arithmetic import arithmetic_of, depthwise_vector, must_pack
from tilewise.kernels.errors import ScheduleError
from tilewise.kernels.fast_algorithms import SIDES, STRIDES, outputs_for
from tilewise.kernels.instructions import WITH_CHOICE, Form
from tilewise.kernels.instructions import instructions as usable
from tilewise.kernels.nest import Role, nest_of
from tilewise.kernels.problem import DTYPES, EPILOGUES, Conv2d, Conv3d, Matmul, Problem
from tilewise.kernels.problem.weights import ACTIVATIONS
from tilewise.kernels.schedule import (
    InstructionChoice,
    Jam,
    KStreams,
    Nontemporal,
    Pack,
    Parallel,
    Prefetch,
    Register,
    Schedule,
    Skinny,
    Split,
    Step,
    Strassen,
    Stream,
    Tile,
    Unroll,
    Winograd,
    begin,
    check_legal,
)
from tilewise.kernels.steps import Place
from tilewise.kernels.steps.skinny import MOST_ROWS_OF_B
from tilewise.kernels.steps.winograd import outputs_of
from tilewise.kernels.target import Target

MOST_SKINNY_ROWS = 8
odd_sizes = st.sampled_from([1, 2, 3, 5, 7, 8, 13, 16, 17, 31, 33, 48, 61, 64, 97])
dtypes = st.sampled_from(["f32", "f64", "i32", "bf16", "f16", "i8", "u8"])
inits = st.sampled_from(["zero", "accumulate"])
ZEROS = ["", "", "a", "b", "ab"]


def epilogues(dtype: str) -> st.SearchStrategy[str]:
    """What ends a problem of a dtype."""
    names = [name for name, one in EPILOGUES.items() if not (one.needs_float or one.is_smooth)]
    if DTYPES[dtype].is_float:
        names += ["relu6", "none", "relu"]
    if DTYPES[dtype].accumulator == "f32":
        names += [name for name, one in EPILOGUES.items() if one.is_smooth]
    return st.sampled_from(names)


@st.composite
def with_results(draw: st.DrawFn, problem: Problem) -> Problem:
    """A problem, or the same with results of another type, with an addition, or with both."""
    if problem.element.bytes == 2:
        problem = replace(problem, out=draw(st.sampled_from(["", "bf16", "f16"])))
    if problem.dtype in ("i8", "u8"):
        b, zero = draw(st.sampled_from(["", "i8", "u8"])), draw(st.sampled_from(ZEROS))
        problem = replace(problem, b=b, zero=zero)
    if problem.dtype in ("i8", "u8") and not problem.accumulates and draw(st.booleans()):
        requant = draw(st.sampled_from(["tensor", "channel"]))
        return replace(problem, out=draw(st.sampled_from(["i8", "u8"])), requant=requant)
    adds = not problem.accumulates and draw(st.sampled_from([False, False, True]))
    return replace(problem, add=adds)


@st.composite
def with_weights(draw: st.DrawFn, problem: Matmul) -> Matmul:
    """A matmul, or where it can be the same with quantised weights."""
    is_able = problem.dtype in ACTIVATIONS and problem.batch == 1 and not problem.transpose_a
    if not (is_able and problem.has_constant_weights and draw(st.booleans())):
        return problem
    b, unsigned = draw(st.sampled_from([("i8", "u8"), ("i4", "u4")]))
    group, scale = (
        draw(st.sampled_from([16, 32, "k"])),
        draw(st.sampled_from(["f32", "f16", "bf16"])),
    )
    zero, a = draw(st.sampled_from(["", unsigned])), draw(st.sampled_from(["", "", "dynamic_i8"]))
    return replace(problem, b=b, group=group, scale=scale, zero_b=zero, a=a)


def matmuls_of(dtypes: st.SearchStrategy[str]) -> st.SearchStrategy[Problem]:
    """Products of matrices of some types of A."""

    def of(dtype: str) -> st.SearchStrategy[Matmul]:
        return st.builds(
            Matmul, dtype=st.just(dtype), batch=st.sampled_from([1, 1, 1, 3]), m=odd_sizes,
            n=odd_sizes, k=odd_sizes, transpose_a=st.booleans(), transpose_b=st.booleans(),
            init=inits, bias=st.booleans(), epilogue=epilogues(dtype),
            weights=st.sampled_from(["variable", "constant"]),
        )  # fmt: skip

    return dtypes.flatmap(of).flatmap(with_weights).flatmap(with_results)


matmuls = matmuls_of(dtypes)


plain_matmuls = st.builds(Matmul, dtype=dtypes, m=odd_sizes, n=odd_sizes, k=odd_sizes)
"""Those that leave most to a schedule: rows of both factors lie as they are read."""


@st.composite
def convolutions(draw: st.DrawFn, dtypes: st.SearchStrategy[str] = dtypes) -> Conv2d:
    """Convolutions of every stride, dilation and pad that leave an output."""
    kh, kw = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    dilation, pad = draw(st.integers(1, 2)), draw(st.integers(0, 3))
    stride: int | str = draw(st.integers(1, 3))
    dilation_h, dilation_w, pads = dilation, dilation, (pad,) * 4
    if draw(st.sampled_from([False, False, True])):
        stride = f"{draw(st.integers(1, 3))}x{draw(st.integers(1, 3))}"
        dilation_h, dilation_w = draw(st.integers(1, 2)), draw(st.integers(1, 2))
        pads = tuple(draw(st.integers(0, 3)) for _ in range(4))
    least_h = max(1, dilation_h * (kh - 1) + 1 - pads[0] - pads[2])
    least_w = max(1, dilation_w * (kw - 1) + 1 - pads[1] - pads[3])
    groups = draw(st.sampled_from([1, 1, 1, 2, 3]))
    channels = [1, 3, 8, 17], [1, 5, 16, 33, 64]
    if draw(st.sampled_from([False, False, True])):
        groups, channels = draw(st.sampled_from([2, 7, 16, 37])), ([1, 1, 2, 4], [1, 1, 2, 3, 8])
    dtype = draw(dtypes)
    return Conv2d(
        layout=draw(st.sampled_from(["nhwc_hwcf", "nchw_fchw"])), groups=groups,
        weights=draw(st.sampled_from(["variable", "constant"])), n=draw(st.integers(1, 2)),
        h=draw(st.integers(least_h, least_h + 9)), w=draw(st.integers(least_w, least_w + 12)),
        ci=groups * draw(st.sampled_from(channels[0])),
        co=groups * draw(st.sampled_from(channels[1])), kh=kh, kw=kw, stride=stride,
        dilation=f"{dilation_h}x{dilation_w}", pad="x".join(map(str, pads)), dtype=dtype,
        init=draw(inits) if groups == 1 else "zero", bias=draw(st.booleans()),
        epilogue=draw(epilogues(dtype)),
    )  # fmt: skip


@st.composite
def volumes(draw: st.DrawFn) -> Conv3d:
    """Convolutions of volumes, whose slices are the images of others."""
    image = draw(convolutions().filter(lambda problem: problem.groups == 1))
    taps, (stride, dilation) = draw(st.integers(1, 3)), draw(st.tuples(*[st.integers(1, 2)] * 2))
    low, high = draw(st.integers(0, 2)), draw(st.integers(0, 2))
    least = max(1, dilation * (taps - 1) + 1 - low - high)
    sides = {"stride": (stride, *image.strides), "dilation": (dilation, *image.dilations),
             "pad": (low, *image.pads.low, high, *image.pads.high)}  # fmt: skip
    layout = Conv3d.choices["layout"][image.has_channels_first]
    keys = {name: value for name, value in image.to_json().items() if name != "op"}
    keys |= {name: "x".join(map(str, numbers)) for name, numbers in sides.items()}
    return Conv3d(**keys | {"d": least + draw(st.integers(0, 3)), "kd": taps, "layout": layout})  # type: ignore[arg-type]


problems = matmuls | convolutions().flatmap(with_results) | volumes().flatmap(with_results)
octets = st.sampled_from(["i8", "u8"])
quantised = (matmuls_of(octets) | convolutions(octets).flatmap(with_results)).filter(
    lambda problem: bool(problem.zero or problem.b) or problem.dtype == "u8"
)
"""Problems of unsigned bytes, of mixed ones, and with zero points."""


def can_split(problem: Problem) -> bool:
    """Whether the reduction can be split: rows of A are contiguous."""
    if not isinstance(problem, Matmul) or problem.zero or problem.quantised_weights:
        return False
    return not (problem.transpose_a and problem.m > 1)


@st.composite
def schedules(
    draw: st.DrawFn, problem: Problem, target: Target, splits: bool | None = None
) -> Schedule:
    """A legal schedule: any structure that the steps allow, any sizes."""
    nest = nest_of(problem)
    if isinstance(problem, Conv2d) and nest.group:
        return draw(window_schedules(problem, target))
    if splits is None and can_tile(problem, target) and draw(st.booleans()):
        return draw(macro_kernels(problem, target, Form.TILES))
    if splits is None and can_be_skinny(problem, target) and draw(st.booleans()):
        return draw(skinny_schedules(problem, target))
    if splits is None:
        splits = can_split(problem) and draw(st.booleans())
    return draw(macro_kernels(problem, target, Form.SPLIT if splits else Form.OUTER_PRODUCT))


@st.composite
def macro_kernels(draw: st.DrawFn, problem: Problem, target: Target, form: Form) -> Schedule:
    """A legal schedule of blocks and packs around a register tile of a form."""
    nest, splits = nest_of(problem), form is Form.SPLIT
    lanes = target.lanes(problem.element.name)
    sides = draw(st.integers(1, 8)), lanes * draw(st.integers(1, 3))
    if form is Form.TILES:
        grids = [(32, 32), (16, 64), (64, 16), (48, 16), (16, 32), (16, 16)]
        sides = draw(st.sampled_from(grids[-1:] if problem.quantised_weights else grids))
    elif splits:
        sides = sides[0], draw(st.integers(1, 6))
    register = Register(*sides, draw(st.sampled_from(["rows", "cols"])))
    steps: list[Step] = [Tile(dim, 1) for dim in nest.named(Role.LEAD)]
    inner: list[Step] = []
    if draw(st.booleans()):
        steps.append(Tile(nest.col, register.cols * draw(st.integers(1, 4))))
    extent = nest.extent(nest.k)
    op = draw(instructions(problem, target, form))
    how = arithmetic_of(problem, target, form, op)
    chunks = max(1, extent // how.depth)
    if extent > how.depth and draw(st.booleans()):
        steps.append(Stream(nest.k, how.depth * draw(st.integers(1, chunks))))
    needed = must_pack(problem, how)
    is_nhwc = nest.image == "A"
    if is_nhwc:
        inner += [Tile(dim, 1) for dim in nest.rows[:-2]]
        if draw(st.booleans()):
            inner.append(Tile("oh", draw(st.integers(1, 5))))
        if draw(st.booleans()):
            inner.append(Tile("ow", register.rows * draw(st.integers(1, 3))))
        pack_a = "A" in needed or draw(st.booleans())
    else:
        if draw(st.booleans()):
            inner.append(Tile(nest.row, register.rows * draw(st.integers(1, 4))))
        can_pack_a = not (splits and problem.transpose_a)
        pack_a = "A" in needed or (can_pack_a and draw(st.booleans()))
    pack_b: list[Step] = [Pack("B")] if "B" in needed or draw(st.booleans()) else []
    inner += [Pack("A")] if pack_a else []
    if not is_nhwc and draw(st.booleans()):
        steps += inner + pack_b  # rows outside, B packed innermost
    else:
        steps += pack_b + inner
    steps += [*([InstructionChoice(op)] if op else []), register]
    if splits:
        steps.append(Split(nest.k, lanes * draw(st.sampled_from([1, 2, 3, 8]))))
    if draw(st.booleans()):
        steps.append(Unroll(draw(st.integers(1, 5))))
    schedule = draw(divided(problem, Schedule(tuple(steps))))
    return draw(prefetched(problem, schedule))


def can_be_skinny(problem: Problem, target: Target, most_rows: int = MOST_SKINNY_ROWS) -> bool:
    """Whether rows of B can be read side by side."""
    if not isinstance(problem, Matmul) or problem.transpose_b or problem.m > most_rows:
        return False
    if problem.zero or problem.quantised_weights:
        return False
    how = arithmetic_of(problem, target, Form.SKINNY)
    return problem.k >= how.depth and not (problem.transpose_a and problem.m > 1)


@st.composite
def skinny_schedules(draw: st.DrawFn, problem: Matmul, target: Target) -> Schedule:
    """A legal schedule of a skinny GEMM."""
    op = draw(instructions(problem, target, Form.SKINNY))
    how = arithmetic_of(problem, target, Form.SKINNY, op)
    deep = how.depth
    depth = deep * draw(st.integers(1, min(problem.k, MOST_ROWS_OF_B) // deep))
    cols = target.lanes(problem.element.name) * draw(st.sampled_from([1, 2, 3, 4, 8]))
    steps: list[Step] = [Tile("batch", 1)] if problem.batch > 1 else []
    if draw(st.booleans()):
        steps.append(Tile("n", cols * draw(st.integers(1, 4))))
    steps.append(Stream("k", depth))
    if draw(st.booleans()):
        steps.append(Prefetch("B"))
    rows = draw(st.integers(1, min(problem.m, MOST_SKINNY_ROWS)))
    if rows < problem.m and draw(st.booleans()):
        steps.insert(len(steps), Tile("m", rows * draw(st.integers(1, 3))))
    tile = Register(rows, cols, "cols" if rows == problem.m else "rows")
    tail: list[Step] = [Skinny("n")]
    apart = [parts for parts in (2, 3, 4, 8) if depth % parts == 0]
    held = rows * (depth // deep + cols // target.lanes(problem.element.name)) + deep + 1
    is_gathered = deep == 1 or held <= target.vector_registers
    if apart and is_gathered and draw(st.booleans()):
        tail.append(KStreams("k", draw(st.sampled_from(apart))))
    steps += [InstructionChoice(op)] if op else []
    return draw(divided(problem, Schedule((*steps, tile, *tail))))


def instructions(problem: Problem, target: Target, form: Form) -> st.SearchStrategy[str | None]:
    """What a schedule may name as its instruction, or None, which never means tiles."""
    dtype = nest_of(problem).factors
    if problem.quantised_weights and form is not Form.TILES:
        return st.none()
    has_choice = dtype in WITH_CHOICE or form is Form.TILES
    found = usable(dtype, target, form, problem.accuracy) if has_choice else []
    names = [one.name for one in found]
    return st.sampled_from(names if form is Form.TILES else [None, *names])


def can_tile(problem: Problem, target: Target) -> bool:
    """Whether the target has matrix tiles for a problem."""
    nest = nest_of(problem)
    has_rows = not nest.group and nest.operand("A").is_contiguous(nest.k)
    found = usable(nest.factors, target, Form.TILES, problem.accuracy)
    return has_rows and bool(found)


@st.composite
def window_schedules(draw: st.DrawFn, problem: Conv2d, target: Target) -> Schedule:
    """A legal schedule of a convolution with few channels in a group."""
    nest = nest_of(problem)
    unit = depthwise_vector(problem, target).columns
    vectors = draw(st.integers(1, max(1, min(3, nest.extent(nest.col) // unit))))
    rows = draw(st.integers(1, min(6, nest.extent(nest.row))))
    tail: list[Step] = [Register(rows, vectors * unit, draw(st.sampled_from(["rows", "cols"])))]
    if nest.row == "ow" and problem.oh > 1 and draw(st.booleans()):
        tail.append(Jam("oh", draw(st.integers(2, min(3, problem.oh)))))
    row = problem.operand_shapes["C"][-1]
    is_whole = unit == target.lanes(problem.element.name) and row % unit == 0
    if is_whole and not nest.store.finishes_apart and draw(st.booleans()):
        tail.append(Nontemporal())
    steps: list[Step] = [Tile("n", 1)] if problem.n > 1 else []
    for dim in draw(st.permutations(["oh", "co"])):
        step = begin(problem, *tail).unit(dim)
        if nest.extent(dim) > step and draw(st.booleans()):
            steps.append(Tile(dim, step * draw(st.integers(1, -(-nest.extent(dim) // step)))))
    return draw(divided(problem, Schedule((*steps, *tail))))


@st.composite
def prefetched(draw: st.DrawFn, problem: Problem, schedule: Schedule) -> Schedule:
    """The schedule with the next block of B prefetched, packed or in place, where that is legal."""
    steps, nest = list(schedule.steps), nest_of(problem)
    moves_b = (nest.col, nest.k)
    moves = [isinstance(step, Tile | Stream) and step.dim in moves_b for step in steps]
    ends = [at for at, is_moving in enumerate(moves) if is_moving]
    at = steps.index(Pack("B")) if Pack("B") in steps else max(ends, default=-1)
    if at >= 0 and draw(st.booleans()):
        steps.insert(at + 1, Prefetch("B"))
        candidate = Schedule(tuple(steps))
        if is_legal(problem, candidate):
            return candidate
    return schedule


@st.composite
def divided(draw: st.DrawFn, problem: Problem, schedule: Schedule) -> Schedule:
    """The schedule with one or two dims divided among threads, where that is legal."""
    nest = nest_of(problem)
    dims = draw(st.lists(st.sampled_from([d for d in nest.scheduled if d != nest.k]), max_size=2))
    for dim in dims:
        candidate = Schedule((Parallel(dim, draw(st.integers(2, 3))), *schedule.steps))
        if is_legal(problem, candidate):
            schedule = candidate
    return schedule


@st.composite
def rearranged(draw: st.DrawFn, problem: Problem, target: Target) -> Schedule:
    """A legal schedule whose steps before the register tile stand in any order.

    Blocks may be prefetched, and steps may stand there twice. Packs and what the registers hold
    stay, since some targets need them.
    """
    return draw(in_any_order(problem, draw(schedules(problem, target))))


@st.composite
def in_any_order(draw: st.DrawFn, problem: Problem, schedule: Schedule) -> Schedule:
    """The schedule with the steps before its register tile in any order, where that is legal."""
    at = [step.place for step in schedule.steps].index(Place.REGISTER)
    named = [step for step in schedule.steps if isinstance(step, InstructionChoice)]
    before = [step for step in schedule.steps[:at] if step not in named]
    tail = (*named, *schedule.steps[at:])
    extra = st.just(Prefetch("B")) | st.sampled_from(before or [Prefetch("B")])
    for _ in range(3):
        more = draw(st.lists(extra, max_size=2))
        candidate = Schedule((*draw(st.permutations([*before, *more])), *tail))
        if is_legal(problem, candidate):
            return candidate
    return schedule


def is_legal(problem: Problem, schedule: Schedule) -> bool:
    """Whether the schedule can be applied to the problem."""
    try:
        check_legal(problem, schedule)
    except ScheduleError:
        return False
    return True


sides = st.sampled_from([1, 2, 3, 4, 5, 6, 8, 9, 13, 14])
FILTERS = [(kh, kw) for kh in (1, *SIDES) for kw in (1, *SIDES) if outputs_for((kh, kw))]
FORMS = [
    (*taps, stride) for stride in STRIDES for taps in FILTERS if outputs_for(taps, stride=stride)
]
ends = st.fixed_dictionaries({
    "dtype": st.sampled_from(["f32", "f64"]), "init": inits, "bias": st.booleans(),
    "epilogue": st.sampled_from(["none", "relu", "relu6"]),
    "weights": st.sampled_from(["variable", "constant"]),
})  # fmt: skip


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
        layout=draw(st.sampled_from(["nhwc_hwcf", "nchw_fchw"])), n=draw(st.integers(1, 3)),
        h=max(1, kh - 2 * pad, draw(sides)), w=max(1, kw - 2 * pad, draw(sides)),
        ci=draw(st.sampled_from([1, 3, 8, 16, 17, 32, 40])),
        co=draw(st.sampled_from([1, 5, 16, 33, 64, 70])),
        kh=kh, kw=kw, pad=pad, stride=stride, **draw(ends),
    )  # fmt: skip
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
