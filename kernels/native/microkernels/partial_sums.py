"""The end of an inner-product micro-kernel: partial sums into C.

The vectors of neighbouring elements of C are added up together, so that their sums
come out side by side in one vector, which is finished and stored as one.
"""

from dataclasses import dataclass

from llvmlite import ir

from tilewise.kernels.native.ir.builder import Builder
from tilewise.kernels.native.ir.control import Transform, when
from tilewise.kernels.native.ir.vectors import ELEMENTS, I32, Value, Vectors, const
from tilewise.kernels.native.microkernels.abi import ADD_BIAS, LOAD_C, RELU, Arguments, ceiling_of
from tilewise.kernels.native.microkernels.inner_product_spec import InnerProductSpec


@dataclass(frozen=True)
class _Strip:
    """Elements of C that are neighbours in memory, stored by one masked store.

    Attributes:
        elements: their indices in the tile.
        address: of the first element of C.
        bias: address of its bias; with `c_down` that of all.
        vectors: emits vectors of the strip's width, a power of two.
        mask: which lanes are elements of C; None for all.
    """

    elements: range
    address: Value
    bias: Value
    vectors: Vectors
    mask: Value | None


class Strips:
    """Emits the end of one micro-kernel, given its arguments by name."""

    def __init__(
        self, builder: Builder, spec: InnerProductSpec, arg: Arguments[Value], edge: bool
    ) -> None:
        self.builder, self.spec, self.arg, self.edge = builder, spec, arg, edge
        self.v = Vectors(builder, ELEMENTS[spec.how.accumulator], spec.lanes)

    def finish(self, totals: list[Value]) -> None:
        """Add up the partial sums of each element, then C, bias and relu, and store."""
        strips = self._strips()
        sums = [self._sums(strip, totals) for strip in strips]
        ceiling = ceiling_of(self.spec.epilogue)

        def loaded(values: list[Value]) -> list[Value]:
            return [
                s.vectors.add(x, s.vectors.load(s.address, s.mask))
                for s, x in zip(strips, values, strict=True)
            ]

        def biased(values: list[Value]) -> list[Value]:
            return [s.vectors.add(x, self._bias(s)) for s, x in zip(strips, values, strict=True)]

        def relu(values: list[Value]) -> list[Value]:
            return [s.vectors.relu(x, ceiling) for s, x in zip(strips, values, strict=True)]

        for flag, then in ((LOAD_C, loaded), (ADD_BIAS, biased), (RELU, relu)):
            sums = self._when(flag, then, sums)
        for strip, value in zip(strips, sums, strict=True):
            strip.vectors.store(value, strip.address, strip.mask)

    def _when(self, flag: int, then: Transform, values: list[Value]) -> list[Value]:
        possible = self.spec.epilogue | LOAD_C
        return when(self.builder, self.arg.flags, flag, possible, then, values)

    def _bias(self, strip: _Strip) -> Value:
        if self.spec.c_down:
            return strip.vectors.load_splat(strip.bias)
        return strip.vectors.load(strip.bias, strip.mask)

    def _strips(self) -> list[_Strip]:
        spec = self.spec
        if spec.c_down:
            return [self._strip(0, i, spec.rows) for i in range(0, spec.rows, spec.lanes)]
        return [
            self._strip(i, j, spec.cols)
            for i in range(spec.rows)
            for j in range(0, spec.cols, spec.lanes)
        ]

    def _strip(self, row: int, first: int, end: int) -> _Strip:
        """The elements [first, end) of a row of C, or of its column, at most a vector of them."""
        b, spec = self.builder, self.spec
        count = min(end - first, spec.lanes)
        width = 1 << (count - 1).bit_length()
        v = Vectors(b, ELEMENTS[spec.how.accumulator], width)
        mask = None
        if self.edge:
            mask = v.first_lanes(self.arg.rows if spec.c_down else self.arg.cols, first)
            mask = b.and_(mask, v.splat(b.icmp_signed("<", const(row), self.arg.rows)))
        elif width > count:
            mask = v.first_lanes(const(count), 0)
        start = row * spec.cols + first
        address = v.at(v.offset(self.arg.c, b.mul(self.arg.c_row, const(row))), first)
        bias = self.arg.bias if spec.c_down else v.at(self.arg.bias, first)
        return _Strip(range(start, start + count), address, bias, v, mask)

    def _sums(self, strip: _Strip, totals: list[Value]) -> Value:
        """One vector with the sum of each of the strip's elements."""
        vectors = [totals[i] for i in strip.elements]
        return self._folded(vectors + [self.v.zero] * (strip.vectors.lanes - len(vectors)))

    def _folded(self, vectors: list[Value]) -> Value:
        """The sums of a power of two of vectors, at most `lanes`, side by side.

        A vector holds blocks, each the partial sums of one of `vectors`; a round halves
        the blocks, of two vectors into one while there are two.
        """
        block = self.spec.lanes
        while block > 1:
            half = block // 2
            if len(vectors) > 1:
                vectors = [
                    self._halved(x, y, block, half)
                    for x, y in zip(vectors[::2], vectors[1::2], strict=True)
                ]
            else:
                vectors = [self._halved(vectors[0], None, block, half)]
            block = half
        return vectors[0]

    def _halved(self, x: Value, y: Value | None, block: int, half: int) -> Value:
        """Lower plus upper half of each block of x, then of y."""
        lanes = x.type.count * (1 if y is None else 2)
        low = [start + i for start in range(0, lanes, block) for i in range(half)]
        indices = ir.VectorType(I32, len(low))
        other = ir.Constant(x.type, ir.Undefined) if y is None else y
        lower = self.builder.shuffle_vector(x, other, ir.Constant(indices, low))
        upper = [lane + half for lane in low]
        return self.v.add(lower, self.builder.shuffle_vector(x, other, ir.Constant(indices, upper)))
