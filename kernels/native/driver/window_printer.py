"""The call of a window micro-kernel, which walks the tiles of a block itself."""

from kernels.loopnest import Loop
from kernels.native.driver.scope import Scope
from kernels.native.ir.vectors import LINE_BYTES
from kernels.native.microkernels.abi import PAST_CACHES, WindowArguments


class WindowPrinter:
    """Prints one call for each block, and counts the tiles that the call has."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.tiles: list[str] = []

    def walked(self, loop: Loop) -> None:
        """A loop over register tiles, which the micro-kernel has; images are visited alone."""
        if loop.dim in self.scope.structure.space.singles:
            return
        by, length = self.scope.step(loop), self.scope.length(loop.dim)
        self.tiles.append(f"(({length} + {by} - 1) // {by})")

    def kernel(self) -> None:
        """The call."""
        scope = self.scope
        image, weights = ("a", "b") if scope.structure.is_conv else ("b", "a")
        arguments = WindowArguments(
            image=self._image(image),
            weights=weights,
            c=f"c + ({scope.offset('c', ('n',))}) * out_size",
            bias="bias",
            line=scope.start["oh"],
            line_end=scope.end["oh"],
            channel=scope.start["co"],
            channel_end=scope.end["co"],
        )
        kernel = "full"
        if scope.structure.writes_past_caches:
            kernel = "kernel"
            scope.put(f"kernel = {PAST_CACHES} if c % {LINE_BYTES} == 0 else full")
        scope.put(f"call_address({kernel}, {', '.join(vars(arguments).values())})")
        scope.count(" * ".join(self.tiles))

    def _image(self, name: str) -> str:
        offset = self.scope.offset("a" if name == "a" else "b", ("n",))
        return f"{name} + ({offset}) * size"
