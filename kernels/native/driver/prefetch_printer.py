"""The prefetch of what of B is read next: rows of a block that is packed then, or panels."""

from kernels.native.driver.parameters import stride
from kernels.native.driver.scope import Scope
from kernels.native.microkernels.abi import PANEL_AHEAD_BYTES


class PrefetchPrinter:
    """Prints where B's next block begins, and what each call fetches of it."""

    def __init__(self, scope: Scope) -> None:
        self.scope, self.structure = scope, scope.structure
        self._packed_end = ""

    def find_next_block(self) -> None:
        """Where B's next block begins, by the two innermost loops that move it; else here."""
        scope, space = self.scope, self.structure.space
        self._packed_end = scope.end[space.col]
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
        lead = scope.offset("b", self.structure.lead("B"))
        scope.put(
            f"next_block = b + ({ahead[space.stream]} * b_stream"
            f" + {ahead[space.col]} * {scope.ensure(stride('b', space.col))} + {lead}) * size"
        )
        scope.put("fetched = 0")

    def fetch_ahead(self) -> None:
        """The rows of B's next block that one call of the micro-kernel prefetches."""
        scope, space = self.scope, self.structure.space
        streamed = any(at.dim == space.stream for at in scope.moves_b)
        scope.put(f"block_rows = depth{'' if streamed else ' * taps'}")
        scope.put("panel = fetched // block_rows * register_cols")
        scope.put(f"is_left = panel < {self._packed_end} - {scope.packed_from['B'][space.col]}")
        scope.put(
            "ahead = next_block"
            f" + is_left * (fetched % block_rows * b_stream + panel * {stride('b', space.col)})"
            " * size"
        )
        steps = "tap_rows * tap_cols * (words * depth_factor // unroll)"
        if self.structure.walks_blocks:
            steps = f"words // block_words * ({scope.ensure('block_words')} // unroll)"
        scope.put(f"fetched += {steps} * word_depth")

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
        put = self.scope.put
        put("if b_tile != panel_read:")
        put("    calls_of_panel = max(on_panel, 1)")
        put("    panel_read, on_panel = b_tile, 0")
        put(f"    share = ({panel_bytes}) // calls_of_panel")
        put("    ahead_step = (register_cols * word_size - 1) // calls_of_panel + 1")
        put(f"ahead = b_tile + {PANEL_AHEAD_BYTES}")
        put("if calls_of_panel > 1:")
        put(f"    ahead = b_tile + {panel_bytes} + min(on_panel, calls_of_panel - 1) * share")
        put("on_panel += 1")
