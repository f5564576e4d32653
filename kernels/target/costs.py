"""What copies, lines and loops take on a core, fitted to what was measured on some processors.

`tilewise.kernels.target.cores` says which processor has which of them.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Cycles of the multiply-add units that one of each amount of a schedule takes.

    `tilewise.search.model.analytical.amounts` counts the amounts. A line is one of a cache, and
    `_rows` are those of an operand that is read in place. An amount that no trial speaks for costs
    little, not nothing, because trials on other processors may.

    Attributes:
        multiply_adds, loads: a slot of a vector multiply-add (the unit), and of a load.
        few_chains: an accumulator that is missing to hide the latency of a step.
        steps: a turn of the loop over the reduction.
        unrolled, crowded: a multiply-add in unrolled code, and there in a tile of many registers.
        calls: a call of the micro-kernel.
        edges: a multiply-add in a tile that the result cuts off.
        c_lines: a line of the result.
        a_from_l2, a_from_l3, a_rows_from_l2, a_rows_from_l3: a line of A from that cache.
        b_from_l2, b_from_l3, b_rows_from_l2, b_rows_from_l3: a line of B.
        packed_a, packed_b, packed_b_far, fetched_b: a line that is packed, also from beyond the
            second cache, also fetched ahead.
        overlap: how well reading hides behind computing: 1 is not at all (their cycles add up),
            infinity is wholly (the longer one counts).
    """

    multiply_adds: float
    loads: float
    few_chains: float
    steps: float
    unrolled: float
    crowded: float
    calls: float
    edges: float
    c_lines: float
    a_from_l2: float
    a_from_l3: float
    a_rows_from_l2: float
    a_rows_from_l3: float
    b_from_l2: float
    b_from_l3: float
    b_rows_from_l2: float
    b_rows_from_l3: float
    packed_a: float
    packed_b: float
    packed_b_far: float
    fetched_b: float
    overlap: float


@dataclass(frozen=True, kw_only=True)
class Transforms:
    """What transforms of operands take (Winograd, Strassen), and the products between them.

    Attributes:
        near, far: how many times as long as a packed line a transformed line takes, where a block
            and its products stay in the second cache, and where they do not.
        far_products: the same of a line of products that is missed twice, when it is written and
            when it is read.
        fetched_result: how many times as long a line of a far result takes that is fetched to be
            written, where stores past the caches could write it.
        fetched_from: times the second cache, how large a transformed filter has to be to be fetched
            ahead.
        products: how many times as long as `Costs` says one of an amount takes in products.
    """

    near: float = 1.5
    far: float = 2.5
    far_products: float = 12.0
    fetched_result: float = 1.0
    fetched_from: float = 4.0
    products: tuple[tuple[str, float], ...] = ()

    @property
    def are_cheap(self) -> bool:
        """Return whether a line is transformed faster than it is packed."""
        return self.near < 1


@dataclass(frozen=True, kw_only=True)
class Streams:
    """How many times as long as one from the last cache a line of B takes that no cache keeps.

    The more rows a tile has, the fewer lines are under way in the window of instructions.

    Attributes:
        fetched: of panels that were packed ahead of all runs, if lines are fetched ahead.
        unfetched_row: the same for each row of a tile, if they are not.
        filter_unfetched_row: of a transformed filter, for each row of a tile, if not.
        filter_from_memory: of one that the last cache does not hold.
    """

    fetched: float = 5.0
    unfetched_row: float = 1.8
    filter_unfetched_row: float = 0.45
    filter_from_memory: float = 3.0


@dataclass(frozen=True, kw_only=True)
class FarCache:
    """What lines of a last cache take that is so far away that fetching them ahead decides.

    Its lines come at the rate at which a core's line-fill buffers become free.

    Attributes:
        line: cycles from one line of a stream that is fetched ahead to the next.
        unfetched: cycles that a line which is not fetched ahead takes beyond these.
        near: cycles less where lines are fetched to the first cache, not the second.
        near_bytes: how far ahead of its use a panel is fetched to the first cache.
    """

    line: float
    unfetched: float
    near: float
    near_bytes: int


# Amounts that no trial speaks for have 0.001 (unrolled) and 0.1.
ZEN5 = Costs(
    multiply_adds=1.0, loads=0.0945, few_chains=0.0501, steps=0.0263, unrolled=0.001, crowded=0.021,
    calls=32.7, edges=0.112, c_lines=0.27, a_from_l2=8.14, a_from_l3=9.52, a_rows_from_l2=7.26,
    a_rows_from_l3=8.95, b_from_l2=1.17, b_from_l3=1.92, b_rows_from_l2=1.77, b_rows_from_l3=2.49,
    packed_a=3.44, packed_b=2.0, packed_b_far=5.23, fetched_b=4.89, overlap=8.0,
)  # fmt: skip
CASCADE_LAKE = Costs(
    multiply_adds=1.0, loads=0.448, few_chains=0.0128, steps=1.72, unrolled=0.0151, crowded=0.0604,
    calls=0.1, edges=0.0066, c_lines=1.57, a_from_l2=1.57, a_from_l3=2.87, a_rows_from_l2=0.86,
    a_rows_from_l3=0.919, b_from_l2=0.19, b_from_l3=1.42, b_rows_from_l2=0.538,
    b_rows_from_l3=1.31, packed_a=8.83, packed_b=2.03, packed_b_far=0.536, fetched_b=0.1,
    overlap=1.0,  # nothing seems to hide behind computing
)  # fmt: skip

TRANSFORMS = Transforms()
"""Of every core that has no other.

`far_products` is measured on Emerald Rapids, where 2048^3 by strassen levels=2 has 171 GFLOP/s in
blocks of 120 groups of rows, and 133 in blocks of 258.
"""
STREAMS = Streams()
"""Measured on Zen 5.

16 rows of bf16 by 11008x4096 take 9.5 ms, and 3.3 where panels are fetched ahead. 7x7x512 has 317,
275 and 157 GFLOP/s in tiles of 4, 8 and 16 rows, and 317, 370 and 372 with `prefetch`. Memory
delivers 46 GB/s, the last cache 120.
"""

GOLDEN_COVE_TRANSFORMS = Transforms(
    near=0.4,
    far=1.4,
    fetched_result=12.0,
    fetched_from=0.75,
    products=(
        ("loads", 0.15), ("steps", 0.5), ("crowded", 0.0), ("a_from_l2", 0.1), ("b_from_l2", 2.5),
        ("packed_b", 7.0), ("packed_b_far", 30.0),
    ),
)  # fmt: skip
"""Fitted to ten layers on Emerald Rapids, and judged by ten others
(docs/experiments/0047-filters-from-a-far-last-cache.md).

`products` are of Cascade Lake's costs. Unrolled loads do not crowd the sums: `unroll factor=4` is
up to 6% faster than none, in every tile, and 8 gains little more
(docs/design/strassen.md). With 2 MiB of L2, fetching the filter ahead wins
8% of 28x28x128 (2.4 MB), 7% of 28x28x112 (1.8 MB), and nothing of 56x56x96 (1.3 MB). On Zen 5, with
1 MiB, 28x28x128 lost 1% by it, and 14x14x256 (9.4 MB) won 33%.
"""
GOLDEN_COVE_MESH = FarCache(line=6.0, unfetched=2.0, near=0.45, near_bytes=4096)
"""Measured on Emerald Rapids: 29 GB/s from the last cache at 2.9 GHz.

7x7x512 in a tile of all 16 rows takes 0.83 ms with 2 to 8 KiB fetched to the first cache, and 0.87
with any prefetch to the second; 14x14x256 takes 0.50 and 0.53.
"""
