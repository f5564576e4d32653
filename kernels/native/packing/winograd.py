"""The transforms of minimal filtering, a vector of channels at a time: copies that compute.

A tile's inputs, or products, are all in registers between the transform's two sides. What lies
outside the image is read from zeros on the stack, and what lies outside the result is written to
the stack: one selected address each, no copy of the image, and no branch.
"""

from collections.abc import Callable
from dataclasses import dataclass

from llvmlite import ir

from kernels.minimal_filtering import TAPS, minimal_filtering
from kernels.native.ir.builder import Builder
from kernels.native.ir.control import Loop, branch
from kernels.native.ir.vectors import ELEMENTS, Value, Vectors, const, internal_function
from kernels.native.packing.linear_maps import on_both_sides

# Addresses; strides in elements; of a tile, where the image begins and ends, in its pixels.
IMAGE_ARGUMENTS = (
    "to", "to_point", "source", "line", "pixel", "top", "bottom", "left", "right",
)  # fmt: skip
RESULT_ARGUMENTS = (
    "to", "line", "pixel", "source", "source_point", "bias", "rows", "cols", "channels",
)  # fmt: skip
FILTER_ARGUMENTS = ("to", "to_point", "to_row", "source", "tap", "row", "cols", "depth")


@dataclass(frozen=True)
class TransformSpec:
    """All that the code of the transforms depends on.

    Attributes:
        element: of the operands, by name.
        lanes: elements of a vector.
        fma: whether the target fuses multiply and add.
        output: pixels of a side of a tile of the result.
        depth, cols: whether the last vector of input or output channels has idle lanes.
        bias, relu: what the result's transform ends with.
    """

    element: str
    lanes: int
    fma: bool
    output: int
    depth: bool
    cols: bool
    bias: bool
    relu: bool


@dataclass(frozen=True)
class _Emitter:
    """A function under way."""

    fn: ir.Function
    spec: TransformSpec
    builder: Builder
    v: Vectors
    arg: dict[str, Value]

    @classmethod
    def begin(
        cls, module: ir.Module, name: str, arguments: tuple[str, ...], spec: TransformSpec
    ) -> "_Emitter":
        fn = internal_function(module, f"tilewise_{name}", len(arguments))
        builder = Builder(fn.append_basic_block("entry"))
        v = Vectors(builder, ELEMENTS[spec.element], spec.lanes, spec.fma)
        return cls(fn, spec, builder, v, dict(zip(arguments, fn.args, strict=True)))

    def size(self, elements: Value) -> Value:
        """So many elements in bytes."""
        return self.builder.mul(elements, const(self.v.element.bytes))

    def chain(self, first: Value, step: Value, count: int) -> list[Value]:
        """`count` addresses, each a step behind the one before."""
        found = [first]
        for _ in range(count - 1):
            found.append(self.builder.add(found[-1], step))
        return found

    def spare(self) -> Value:
        """The address of a vector of zeros on the stack."""
        at = self.builder.alloca(self.v.type)
        self.builder.store(self.v.zero, at, align=self.v.element.bytes)
        return self.builder.ptrtoint(at)

    def over_channels(
        self, count: Value, has_rest: bool, body: Callable[[Value, Value | None], None]
    ) -> None:
        """`body` for each vector of channels: where it begins, and the mask of the last."""
        b, lanes = self.builder, self.spec.lanes
        whole = b.sub(count, b.srem(count, const(lanes))) if has_rest else count
        with b.if_then(b.icmp_signed(">", whole, const(0))):
            loop = Loop(b, (), "channels")
            body(loop.index, None)
            loop.close((), whole, lanes)
        if has_rest:
            rest = b.sub(count, whole)
            with b.if_then(b.icmp_signed(">", rest, const(0))):
                body(whole, self.v.first_lanes(rest, 0))

    def all_of(self, conditions: list[Value]) -> Value:
        """Whether every condition holds."""
        found = conditions[0]
        for condition in conditions[1:]:
            found = self.builder.and_(found, condition)
        return found

    def choose(self, whole: Value, body: Callable[[bool], None]) -> ir.Function:
        """`body` for a whole tile or for one that is cut, and the return."""

        def either(is_cut: bool, nothing: list[Value]) -> list[Value]:
            body(is_cut)
            return nothing

        branch(self.builder, whole, lambda n: either(False, n), [], lambda n: either(True, n))
        self.builder.ret_void()
        return self.fn


def emit_transform_image(module: ir.Module, spec: TransformSpec) -> ir.Function:
    """to[point][channels] = B' d B for the tile d at `source`, as many pixels beyond its output.

    `source` may lie outside the image; pixels above `top`, from `bottom` on, before `left` or from
    `right` on are zero and not read. A pixel is its channels; whole vectors are written.
    """
    e = _Emitter.begin(module, "transform_image", IMAGE_ARGUMENTS, spec)
    b, v, arg, side = e.builder, e.v, e.arg, minimal_filtering(spec.output).input
    spare = e.spare()
    line, pixel, point = (e.size(arg[name]) for name in ("line", "pixel", "to_point"))
    lines, pixels = e.chain(const(0), line, side), e.chain(const(0), pixel, side)
    whole = e.all_of(
        [b.icmp_signed("<=", arg[name], const(0)) for name in ("top", "left")]
        + [b.icmp_signed(">=", arg[name], const(side)) for name in ("bottom", "right")]
    )

    def inside(first: str, end: str) -> list[Value]:
        return [
            b.and_(
                b.icmp_signed("<=", arg[first], const(i)), b.icmp_signed("<", const(i), arg[end])
            )
            for i in range(side)
        ]

    def tile(is_cut: bool) -> None:
        down = inside("top", "bottom") if is_cut else []
        across = inside("left", "right") if is_cut else []

        def vector(channel: Value, mask: Value | None) -> None:
            source = v.offset(arg["source"], channel)
            rows = [b.add(source, at) for at in lines]

            def read(i: int, j: int) -> Value:
                at = b.add(rows[i], pixels[j])
                if is_cut:
                    at = b.select(b.and_(down[i], across[j]), at, spare)
                return v.load(at, mask)

            found = on_both_sides(v, minimal_filtering(spec.output).image, (side, side), read)
            to = e.chain(v.offset(arg["to"], channel), point, side * side)
            for at, value in zip(to, [x for row in found for x in row], strict=True):
                v.store(value, at)

        e.over_channels(arg["pixel"], spec.depth, vector)

    return e.choose(whole, tile)


def emit_transform_result(module: ir.Module, spec: TransformSpec) -> ir.Function:
    """to[pixels][channels] = A' M A for the products M[point][channels] of a tile.

    Bias and relu come last. Pixels from `rows` or `cols` on, and channels from `channels` on, do
    not exist and are not written.
    """
    e = _Emitter.begin(module, "transform_result", RESULT_ARGUMENTS, spec)
    b, v, arg, filtering = e.builder, e.v, e.arg, minimal_filtering(spec.output)
    side, output = filtering.input, filtering.output
    spare = e.spare()
    line, pixel, point = (e.size(arg[name]) for name in ("line", "pixel", "source_point"))
    lines, pixels = e.chain(const(0), line, output), e.chain(const(0), pixel, output)
    whole = e.all_of([b.icmp_signed(">=", arg[name], const(output)) for name in ("rows", "cols")])

    def tile(is_cut: bool) -> None:
        down = [b.icmp_signed("<", const(i), arg["rows"]) for i in range(output if is_cut else 0)]
        across = [b.icmp_signed("<", const(i), arg["cols"]) for i in range(output if is_cut else 0)]

        def vector(channel: Value, mask: Value | None) -> None:
            source = e.chain(v.offset(arg["source"], channel), point, side * side)
            found = on_both_sides(
                v, filtering.result, (side, side), lambda i, j: v.load(source[i * side + j], mask)
            )
            bias = v.load(v.offset(arg["bias"], channel), mask) if spec.bias else None
            to = v.offset(arg["to"], channel)
            for i, row in enumerate(found):
                for j, value in enumerate(row):
                    at = b.add(b.add(to, lines[i]), pixels[j])
                    if is_cut:
                        at = b.select(b.and_(down[i], across[j]), at, spare)
                    v.store(_finished(v, value, bias, spec.relu), at, mask)

        e.over_channels(arg["channels"], spec.cols, vector)

    return e.choose(whole, tile)


def _finished(v: Vectors, value: Value, bias: Value | None, relu: bool) -> Value:
    value = value if bias is None else v.add(value, bias)
    return v.relu(value) if relu else value


def emit_transform_filter(module: ir.Module, spec: TransformSpec) -> ir.Function:
    """to[point][depth][to_row] = G w G' for the filter w[taps][depth][cols], zero past `cols`."""
    e = _Emitter.begin(module, "transform_filter", FILTER_ARGUMENTS, spec)
    b, v, arg, filtering = e.builder, e.v, e.arg, minimal_filtering(spec.output)
    tap, point = e.size(arg["tap"]), e.size(arg["to_point"])
    row = Loop(b, (), "depth")
    source = v.offset(arg["source"], b.mul(row.index, arg["row"]))
    to = v.offset(arg["to"], b.mul(row.index, arg["to_row"]))
    vector = Loop(b, (), "columns")
    mask = v.first_lanes(b.sub(arg["cols"], vector.index), 0)
    taps = e.chain(v.offset(source, vector.index), tap, TAPS * TAPS)
    found = on_both_sides(
        v, filtering.filter, (TAPS, TAPS), lambda i, j: v.load(taps[i * TAPS + j], mask)
    )
    points = e.chain(v.offset(to, vector.index), point, filtering.input**2)
    for at, value in zip(points, [x for row in found for x in row], strict=True):
        v.store(value, at)
    vector.close((), arg["to_row"], spec.lanes)
    row.close((), arg["depth"], 1)
    b.ret_void()
    return e.fn
