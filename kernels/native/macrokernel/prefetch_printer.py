"""The prefetch of what of B is read next: rows of a block that is packed then, or panels."""

from tilewise.kernels.native.macrokernel.parameters import RowsAhead, names_of, stride
from tilewise.kernels.native.macrokernel.scope import Scope

FETCH_PARTS, FETCH_BYTES = names_of(RowsAhead)


class PrefetchPrinter:
    """Prints where B's next block begins, and what each call fetches of it."""

    def __init__(self, scope: Scope) -> None:
        self.scope, self.nest = scope, scope.nest

    def begin_blocks(self) -> None:
        """Before the loops: no call has been made for a block."""
        self.scope.put("calls_of_block = 0")

    def find_next_block(self) -> None:
        """Where B's next block begins, by the two innermost loops that move it; else here.

        The last calls of a block fetch the next one, as many as the rows take. Fetched before, they
        would leave L2 again while rows of A and C stream through it. How many calls there are is
        what the block before had; in the first block the first calls fetch.
        """
        scope, nest = self.scope, self.nest
        *_, inner = scope.moves_b
        outer = next((loop for loop in scope.moves_b[:-1] if loop.dim != inner.dim), None)
        ahead = dict(scope.start)
        for at in (inner, outer):
            if at is not None:
                scope.put(f"next_{at.dim} = {at.start}")
                ahead[at.dim] = f"next_{at.dim}"
        scope.put(f"if {inner.start} + {inner.step} < {inner.end}:")
        scope.put(f"    next_{inner.dim} += {inner.step}")
        if outer is not None:
            scope.put(f"elif {outer.start} + {outer.step} < {outer.end}:")
            scope.put(f"    next_{outer.dim} += {outer.step}")
            scope.put(f"    next_{inner.dim} = {inner.first}")
        lead = scope.offset("b", scope.lead("B"))
        scope.put(
            f"next_block = b + ({ahead[nest.k]} * b_stream"
            f" + {ahead[nest.col]} * {scope.ensure(stride('b', nest.col))} + {lead}) * size"
        )
        self._count_calls()

    def _count_calls(self) -> None:
        """Calls until the first that fetches, of a block; and what each of them fetches."""
        scope, nest = self.scope, self.nest
        depth, col = f"({scope.length(nest.k)})", nest.col
        streamed = any(at.dim == nest.k for at in scope.moves_b)
        parts = scope.ensure(FETCH_PARTS)
        scope.put(f"words_ahead = ({depth} + word_depth - 1) // word_depth")
        scope.put(f"rows_of_call = max({self._steps('words_ahead')} * word_depth, 1)")
        scope.put(f"block_rows = {depth}{'' if streamed else ' * taps'}")
        scope.put("calls_of_part = (block_rows - 1) // rows_of_call + 1")
        scope.put(f"panels = ({scope.length(col)} - 1) // register_cols + 1")
        scope.put(f"fetching_calls = calls_of_part * {parts} * panels")
        scope.put("fetching = min(fetching_calls, calls_of_block) - calls_of_block")
        scope.put("calls_of_block = 0")

    def fetch_ahead(self) -> None:
        """The lines of rows of B's next block that one call of the micro-kernel prefetches."""
        scope, col = self.scope, self.nest.col
        parts, size = scope.ensure(FETCH_PARTS), scope.ensure(FETCH_BYTES)
        scope.put("is_left = (fetching >= 0) * (fetching < fetching_calls)")
        scope.put("part = fetching // calls_of_part")
        scope.put("row_ahead = fetching % calls_of_part * rows_of_call")
        panel = f"part // {parts} * register_cols * {stride('b', col)}"
        scope.put(
            "ahead = next_block"
            f" + is_left * ((row_ahead * b_stream + {panel}) * size + part % {parts} * {size})"
        )
        scope.put("fetching += 1")
        scope.put("calls_of_block += 1")

    def _steps(self, words: str) -> str:
        """Iterations of a call's loops, each of which fetches a row of words."""
        return f"tap_rows * tap_cols * ({words} * depth_factor // unroll)"

    def begin_panels(self) -> None:
        """Before the loops: no call has read a panel that was packed ahead."""
        self.scope.put("panel_read, on_panel, calls_of_panel = 0, 0, 1")
        self.scope.put("share, ahead_step = 0, 0")

    def fetch_panels(self, panel_bytes: str) -> None:
        """What of B's panels a call fetches: its share of the next one, which lies behind its own.

        Of as many calls as read the panel before, each fetches a part: so memory is asked as long
        as there are products, and not by the first call alone. A panel that one call reads is
        fetched as that goes on.

        Args:
            panel_bytes: from one panel to the next.
        """
        put, (fetch,) = self.scope.put, self.nest.fetches
        put("if b_tile != panel_read:")
        put("    calls_of_panel = max(on_panel, 1)")
        put("    panel_read, on_panel = b_tile, 0")
        put(f"    share = ({panel_bytes}) // calls_of_panel")
        put("    ahead_step = (register_cols * word_size - 1) // calls_of_panel + 1")
        put(f"ahead = b_tile + {fetch.distance}")
        put("if calls_of_panel > 1:")
        put(f"    ahead = b_tile + {panel_bytes} + min(on_panel, calls_of_panel - 1) * share")
        put("on_panel += 1")
