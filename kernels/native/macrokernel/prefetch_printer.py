"""Prints a nest's `Fetch`: what each call of the micro-kernel prefetches of B.

Calls share the work: of the next block, which is packed then, the last ones before it fetch rows;
of the next panel, which was packed ahead, each call on the panel before fetches a part. Memory is
then read as long as there are products, instead of by the first call alone.
"""

from tilewise.kernels.native.macrokernel.nest_printer import BlockLoop, NestPrinter
from tilewise.kernels.native.macrokernel.parameters import stride
from tilewise.kernels.nest import Fetched


class PrefetchPrinter:
    """No prefetch.

    Attributes:
        ahead, step: the arguments of a call: what it fetches first, and the bytes from there to
            what its next iteration does.
    """

    ahead = step = "0"

    def __init__(self, printer: NestPrinter) -> None:
        self.printer, self.nest, self.put = printer, printer.nest, printer.put

    def begin(self) -> None:
        """Print what the loops need to count calls."""

    def begin_block(self) -> None:
        """Print where B's next block begins, and how calls of this one share it."""

    def call(self, panel_bytes: str) -> None:
        """Print what a call fetches.

        Args:
            panel_bytes: from one panel of B to the next.
        """


class NextBlock(PrefetchPrinter):
    """The rows of B's next block, by the last calls of a block, as many as the rows take.

    Fetched before, they would leave L2 again while rows of A and C stream through it. The number of
    calls is that of the block before; in the first block the first calls fetch.
    """

    ahead, step = "ahead", "is_left * b_stream * size"

    def begin(self) -> None:
        """Print the counter of the calls of a block."""
        self.put("calls_of_block = 0")

    def begin_block(self) -> None:
        """Print the next block, by the two innermost loops that move it, and shares of calls."""
        ahead = self._next_starts()
        nest, printer = self.nest, self.printer
        self.put(
            f"next_block = b + ({ahead[nest.k]} * b_stream + {ahead[nest.col]}"
            f" * {stride('b', nest.col)} + {printer.offset('b', printer.lead('B'))}) * size"
        )
        depth = f"({printer.length(nest.k)})"
        has_k_blocks = any(at.dim == nest.k for at in printer.moves_b)
        steps = "tap_rows * tap_cols * (words_ahead * depth_factor // unroll)"
        self.put(f"words_ahead = ({depth} + word_depth - 1) // word_depth")
        self.put(f"rows_of_call = max({steps} * word_depth, 1)")
        self.put(f"block_rows = {depth}{'' if has_k_blocks else ' * taps'}")
        self.put("calls_of_part = (block_rows - 1) // rows_of_call + 1")
        self.put(f"panels = ({printer.length(nest.col)} - 1) // register_cols + 1")
        self.put("fetching_calls = calls_of_part * fetch_parts * panels")
        self.put("fetching = min(fetching_calls, calls_of_block) - calls_of_block")
        self.put("calls_of_block = 0")

    def _next_starts(self) -> dict[str, str]:
        """Print where the next block begins; return that by dim, the present start for others."""
        moves = self.printer.moves_b
        inner = moves[-1]
        outer = next((loop for loop in moves[:-1] if loop.dim != inner.dim), None)
        ahead = dict(self.printer.start)
        for loop in filter(None, (inner, outer)):
            self.put(f"next_{loop.dim} = {loop.start}")
            ahead[loop.dim] = f"next_{loop.dim}"
        self._advance("if", inner)
        if outer is not None:
            self._advance("elif", outer)
            self.put(f"    next_{inner.dim} = {inner.first}")
        return ahead

    def _advance(self, condition: str, loop: BlockLoop) -> None:
        self.put(f"{condition} {loop.start} + {loop.step} < {loop.end}:")
        self.put(f"    next_{loop.dim} += {loop.step}")

    def call(self, panel_bytes: str) -> None:
        """Print the lines of rows of the next block that one call prefetches."""
        panel = f"part // fetch_parts * register_cols * {stride('b', self.nest.col)}"
        self.put("is_left = (fetching >= 0) * (fetching < fetching_calls)")
        self.put("part = fetching // calls_of_part")
        self.put("row_ahead = fetching % calls_of_part * rows_of_call")
        self.put(
            f"ahead = next_block + is_left * ((row_ahead * b_stream + {panel}) * size"
            " + part % fetch_parts * fetch_bytes)"
        )
        self.put("fetching += 1")
        self.put("calls_of_block += 1")


class NextPanel(PrefetchPrinter):
    """The panel of B after the one that calls read: of as many calls as before, a part each.

    A panel that one call reads is fetched while that call runs.
    """

    ahead, step = "ahead", "ahead_step"

    def begin(self) -> None:
        """Print the counters of the calls of a panel."""
        self.put("panel_read, on_panel, calls_of_panel = 0, 0, 1")
        self.put("share, ahead_step = 0, 0")

    def call(self, panel_bytes: str) -> None:
        """Print a call's part of the next panel."""
        (fetch,) = self.nest.fetches
        self.put("if b_tile != panel_read:")
        self.put("    calls_of_panel = max(on_panel, 1)")
        self.put("    panel_read, on_panel = b_tile, 0")
        self.put(f"    share = ({panel_bytes}) // calls_of_panel")
        self.put("    ahead_step = (register_cols * word_size - 1) // calls_of_panel + 1")
        self.put(f"ahead = b_tile + {fetch.distance}")
        self.put("if calls_of_panel > 1:")
        self.put(f"    ahead = b_tile + {panel_bytes} + min(on_panel, calls_of_panel - 1) * share")
        self.put("on_panel += 1")


_KINDS = {Fetched.NEXT_BLOCK: NextBlock, Fetched.NEXT_PANEL: NextPanel}


def prefetch_of(printer: NestPrinter) -> PrefetchPrinter:
    """Return what prints the prefetch of a nest, if any."""
    for fetch in printer.nest.fetches:
        return _KINDS[fetch.what](printer)
    return PrefetchPrinter(printer)
