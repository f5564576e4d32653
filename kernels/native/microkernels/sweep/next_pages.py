"""Prefetches of where rows of B enter their next pages, for rows that all do so at once.

Processors follow a stream to the end of its page of 4 KiB, and learn anew where the next one
begins. Rows a multiple of a page apart end their pages together, and then no line is under way but
those that loads have asked for. Whole rows of so many are not worth fetching: a line of each falls
on one set of the first cache, which drops them before they are read.
"""

from tilewise.kernels.native.ir.builder import Builder
from tilewise.kernels.native.ir.control import branch
from tilewise.kernels.native.ir.vectors import ELEMENTS, LINE_BYTES, Value, Vectors, const
from tilewise.kernels.native.microkernels.abi import SweepArguments
from tilewise.kernels.native.microkernels.sweep.spec import PAGE_BYTES, SweepSpec

PAGE_LINES = PAGE_BYTES // LINE_BYTES
FIRST_LINES = 4  # of a page, after which processors follow its stream
LAST_LINES = 16  # of a page, beside which the next one is fetched: earlier it takes up a follower


class NextPages:
    """Emits the share of a group of columns in what a chunk fetches of its next pages.

    Each row has a turn in the walk over a page's last lines, so that no group has many.
    """

    def __init__(self, builder: Builder, spec: SweepSpec, arg: SweepArguments[Value]) -> None:
        self.builder, self.spec, self.arg = builder, spec, arg
        self.stored = Vectors(builder, ELEMENTS[spec.how.stored], spec.lanes)

    def fetch(self, b_at: Value, col: Value, lines: int) -> None:
        """The prefetches beside a group that begins at `b_at`, of so many lines of each row.

        Where a row hardly enters its next page, the next chunk's row counts as that page.
        """
        b, size = self.builder, self.stored.element.bytes
        line = b.sdiv(b.and_(b_at, const(PAGE_BYTES - 1)), const(LINE_BYTES))
        turn = b.sub(line, const(PAGE_LINES - LAST_LINES))

        def fetches(nothing: list[Value]) -> list[Value]:
            page = b.mul(b.sub(const(PAGE_LINES), line), const(LINE_BYTES))
            end = b.mul(b.sub(self.arg.cols, col), const(size))
            inside = b.icmp_signed("<", b.add(page, const(FIRST_LINES * LINE_BYTES)), end)
            next_page = b.add(b_at, b.select(inside, page, b.add(end, self.arg.wrap)))
            for index in range(lines):
                self._turn(next_page, b.add(turn, const(index)))
            return nothing

        branch(b, b.icmp_signed(">=", turn, const(0)), fetches, [])

    def _turn(self, next_page: Value, turn: Value) -> None:
        """The first lines of some rows' next pages; the first row's is given."""
        b, rows = self.builder, -(-self.spec.depth // LAST_LINES)
        for index in range(rows):
            place = b.add(b.mul(turn, const(rows)), const(index))
            first = self.stored.offset(next_page, self._row(place))
            for line in range(FIRST_LINES):
                self.stored.prefetch_to_l2(b.add(first, const(line * LINE_BYTES)))

    def _row(self, place: Value) -> Value:
        """Elements of B from the chunk's first row to the one at a place of it."""
        b, spec = self.builder, self.spec
        part, row = b.srem(place, const(spec.streams)), b.sdiv(place, const(spec.streams))
        step = b.add(b.mul(part, const(spec.whole // spec.streams)), row)
        return b.mul(step, const(spec.b_row))
