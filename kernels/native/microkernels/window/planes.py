"""Register tiles where every channel is a plane (`nchw_fchw`): vectors of pixels of a line.

    C[line, pixels] = sum over j, taps of A[j, pixels at tap] * B[j, tap]

Neighbouring outputs are the lanes, and a tap of the filter is the same for all of them. What lies
beside the image is masked out; which lanes these are is known when the code is written.
"""

from functools import partial

from llvmlite import ir

from tilewise.kernels.native.ir.control import Loop
from tilewise.kernels.native.ir.dot_products import multiply_add, widen
from tilewise.kernels.native.ir.vectors import I32, Value, const
from tilewise.kernels.native.microkernels.window.runs import Found, Run, runs
from tilewise.kernels.native.microkernels.window.tile import Place, Readers, WindowTile, lanes_mask

PAIRS = 2  # the stride of which two whole vectors are loaded; from wider ones elements are gathered


class PlaneTile(WindowTile[list[Value]]):
    """Emits tiles of a few vectors of one channel's lines."""

    def runs(self) -> list[Run]:
        """The tiles of a line: vectors side by side."""
        return runs(self.spec.across, self.spec.span, self.spec.vectors)

    def held_weights(self, channel: Value) -> list[Value] | None:
        """The filter of a channel, if registers hold it beside the sums."""
        spec = self.spec
        if spec.inputs > 1 or spec.taps + spec.sums + 1 > spec.registers:
            return None
        at = self._weights_at(channel)
        return [self.splat(self.stored.at(at, tap)) for tap in range(spec.taps)]

    def emit(self, run: Run, place: Place, held: list[Value] | None) -> None:
        """One tile: every input of the group, line by line."""
        spec, b = self.spec, self.builder
        sums = self.start(len(run.starts), place)
        image, weights = self._image_at(place), self._weights_at(place.channel)
        taken = held or []
        if spec.inputs == 1:
            sums = self.by_lines(place, sums, partial(self._add, run, image, weights, taken))
        else:
            loop = Loop(b, sums, "input")
            plane = spec.down.extent * spec.across.extent
            at = self.moved(self.stored, image, (loop.index, plane))
            of = self.moved(self.stored, weights, (loop.index, spec.taps))
            sums = self.by_lines(place, loop.carried, partial(self._add, run, at, of, []))
            sums = loop.close(sums, const(spec.inputs), 1)
        self.store(sums, self._outputs(run, place))

    def _add(
        self,
        run: Run,
        image: Value,
        weights: Value,
        held: list[Value],
        offset: int,
        readers: Readers,
        sums: list[Value],
    ) -> list[Value]:
        """The sums plus the products of one line of the image."""
        across, out, wide = self.spec.across, list(sums), len(run.starts)
        for vector, start in enumerate(run.starts):
            for tap_col in range(across.taps):
                found = run.found[vector][tap_col]
                if not any(found):
                    continue
                first = offset * across.extent + across.offset(start, tap_col)
                read = self._pixels(self.stored.at(image, first), found)
                for line, tap_row in readers:
                    tap = tap_row * across.taps + tap_col
                    weight = held[tap] if held else self.splat(self.stored.at(weights, tap))
                    at = line * wide + vector
                    out[at] = multiply_add(self.v, self.spec.how.instruction, read, weight, out[at])
        return out

    def _pixels(self, at: Value, found: Found) -> Value:
        """A vector of pixels that lie a stride apart."""
        stride, lanes = self.spec.across.stride, self.spec.lanes
        on = [*found, *[False] * (lanes - len(found))]
        if stride == 1:
            return self.load(at, on)
        if stride > PAIRS:
            how = self.spec.how
            taken = self.stored.gather(at, stride, lanes_mask(on))
            return widen(self.builder, taken, how.stored, how.accumulator)
        spread = [each for pixel in on for each in (pixel, False)]
        low = self.load(at, spread[:lanes])
        high = self.load(self.stored.at(at, lanes), spread[lanes:])
        even = ir.Constant(ir.VectorType(I32, lanes), [PAIRS * lane for lane in range(lanes)])
        return self.builder.shuffle_vector(low, high, even)

    def bias(self, width: int, at: Value) -> list[Value]:
        """The channel's one value."""
        return [self.v.load_splat(at)] * width

    # Where things lie

    def _image_at(self, place: Place) -> Value:
        """The first tap of the tile's first output, in the first plane of its group."""
        spec, b = self.spec, self.builder
        down, across = spec.down, spec.across
        group = place.channel
        if spec.outputs > 1:
            group = b.sdiv(place.channel, const(spec.outputs))
        at = self.moved(
            self.stored,
            self.arg.image,
            (group, spec.inputs * down.extent * across.extent),
            (place.line, down.stride * across.extent),
            (place.column, across.stride),
        )
        return self.stored.at(at, -(down.pad * across.extent + across.pad))

    def _weights_at(self, channel: Value) -> Value:
        return self.moved(
            self.stored, self.arg.weights, (channel, self.spec.inputs * self.spec.taps)
        )

    def _outputs(self, run: Run, place: Place) -> list[Value]:
        spec = self.spec
        width = spec.across.outputs
        at = self.moved(
            self.v,
            self.arg.c,
            (place.channel, spec.down.outputs * width),
            (place.line, width),
            (place.column, 1),
        )
        return [
            self.v.at(at, line * width + start)
            for line in range(spec.lines)
            for start in run.starts
        ]
