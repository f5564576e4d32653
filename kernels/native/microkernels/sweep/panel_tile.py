"""A register tile of rows in a whole group of columns, whose sums lie in a panel between chunks."""

from collections.abc import Callable

from tilewise.kernels.native.ir.builder import Builder
from tilewise.kernels.native.ir.control import branch
from tilewise.kernels.native.ir.vectors import Value
from tilewise.kernels.native.microkernels.abi import FROM_WORDS, TO_WORDS, SweepArguments
from tilewise.kernels.native.microkernels.sweep.row_tile import RowTile
from tilewise.kernels.native.microkernels.sweep.spec import SweepSpec


class PanelTile(RowTile):
    """A tile of a whole chunk that shares words with others.

    Words come from `words_at`; one tile of all puts them there.
    """

    def __init__(
        self,
        builder: Builder,
        spec: SweepSpec,
        arg: SweepArguments[Value],
        row: Value,
        words_at: Value,
        puts_words: bool,
    ) -> None:
        super().__init__(builder, spec, arg, row, is_whole=True)
        self.words_at, self.puts_words = words_at, puts_words

    def group(
        self, col: Value, panel: Value, is_between: bool, beside: Callable[[int], None]
    ) -> None:
        """All rows of the tile in a group of columns.

        Args:
            col: the first column.
            panel: address of the tile's sums between chunks, in the order of words.
            is_between: whether whole chunks come before and behind this one.
            beside: emits what comes before the products of each word.
        """
        spec, c = self.spec, self.places(col, self.spec.vectors)
        places = [self.v.at(panel, i * spec.lanes) for i in range(spec.rows * spec.vectors)]

        def load(_zeros: list[Value]) -> list[Value]:
            return [self.v.load(at) for at in places]

        def store(sums: list[Value]) -> list[Value]:
            for value, at in zip(sums, places, strict=True):
                self.v.store(value, at)
            return sums

        def begin(_zeros: list[Value]) -> list[Value]:
            return self.products.in_order_of_words(self.initial(c, col, spec.vectors, None))

        def end(sums: list[Value]) -> list[Value]:
            done = self.ended(self.products.in_order_of_columns(sums))
            for value, at in zip(done, c, strict=True):
                self.v.store(value, at)
            return sums

        if is_between:
            store(self._of_chunk(load([]), col, beside))
            return
        zeros = [self.v.zero] * len(places)
        sums = branch(self.builder, self.lacks(FROM_WORDS), begin, zeros, load)
        branch(self.builder, self.lacks(TO_WORDS), end, self._of_chunk(sums, col, beside), store)

    def _of_chunk(
        self, sums: list[Value], col: Value, beside: Callable[[int], None]
    ) -> list[Value]:
        """The sums plus the products of the chunk."""
        vectors, at = self.spec.vectors, self.words_at
        if self.puts_words:
            return self.products.of_chunk(sums, col, vectors, None, at, beside)
        return self.products.of_words_put(sums, at, vectors, beside)
