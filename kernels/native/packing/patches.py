"""Copies from an image's channels to rows of B: what gathering patches is made of.

Along one output row the pixels that one filter tap reads lie `stride` apart in each
channel, so a row of B takes them as vectors; every channel repeats it a plane further.
"""

from dataclasses import dataclass

from llvmlite import ir

from tilewise.kernels.arithmetic import Arithmetic
from tilewise.kernels.native.ir.builder import Builder
from tilewise.kernels.native.ir.control import Loop
from tilewise.kernels.native.ir.dot_products import widen
from tilewise.kernels.native.ir.vectors import (
    ELEMENTS,
    I32,
    Value,
    Vectors,
    const,
    internal_function,
)

# Addresses; strides in elements of each side; the rest in pixels of the output.
PATCHES_ARGUMENTS = (
    "to", "to_row", "source", "source_row", "channels", "pixels", "first", "end",
)  # fmt: skip


def emit_copy_patches(module: ir.Module, how: Arithmetic, lanes: int, stride: int) -> ir.Function:
    """to[channels][pixels] = source[channels][pixels * stride] from pixel first to end, else 0.

    `source` is where pixel 0 would lie, which may be outside the image; nothing but the
    pixels from first to end is read. Elements that are multiplied singly are widened here,
    others stay as they are, to be joined when the panel is packed.
    """
    fn = internal_function(module, "tilewise_copy_patches", len(PATCHES_ARGUMENTS))
    arg = dict(zip(PATCHES_ARGUMENTS, fn.args, strict=True))
    b = Builder(fn.append_basic_block("entry"))
    packed = how.packed if how.depth == 1 else how.stored
    read = _Reader(Vectors(b, ELEMENTS[how.stored], lanes), stride)
    write = Vectors(b, ELEMENTS[packed], lanes)

    chunk = Loop(b, (), "chunk")
    masks = read.masks(b.sub(arg["first"], chunk.index), b.sub(arg["end"], chunk.index))
    inside = write.first_lanes(b.sub(arg["pixels"], chunk.index), 0)
    source = read.v.offset(arg["source"], b.mul(chunk.index, const(stride)))
    to = write.offset(arg["to"], chunk.index)
    channel = Loop(b, (source, to), "channel")
    source, to = channel.carried
    write.store(widen(b, read.pixels(source, masks), how.stored, packed), to, inside)
    following = (read.v.offset(source, arg["source_row"]), write.offset(to, arg["to_row"]))
    channel.close(following, arg["channels"], 1)
    chunk.close((), arg["pixels"], lanes)
    b.ret_void()
    return fn


@dataclass(frozen=True)
class _Reader:
    """Loads a vector of elements that lie `stride` apart."""

    v: Vectors
    stride: int

    def masks(self, first: Value, end: Value) -> list[Value]:
        """For each vector that is loaded, the lanes that hold pixels from `first` to `end`.

        Strides of one and two load whole vectors; others gather, with one mask for all.
        """
        b, lanes = self.v.builder, self.v.lanes
        loads = self.stride if self.stride <= 2 else 1
        limits = [self.v.splat(b.trunc(limit, I32)) for limit in (first, end)]
        masks = []
        for load in range(loads):
            elements = range(load * lanes, (load + 1) * lanes)
            ids = ir.Constant(limits[0].type, [e // loads for e in elements])
            wanted = ir.Constant(
                ir.VectorType(ir.IntType(1), lanes), [e % loads == 0 for e in elements]
            )
            here = b.and_(b.icmp_signed(">=", ids, limits[0]), b.icmp_signed("<", ids, limits[1]))
            masks.append(b.and_(here, wanted))
        return masks

    def pixels(self, source: Value, masks: list[Value]) -> Value:
        """The vector of pixels at `source`; zero in lanes that are off."""
        v = self.v
        if self.stride > 2:
            return v.gather(source, self.stride, masks[0])
        parts = [v.load(v.at(source, i * v.lanes), mask) for i, mask in enumerate(masks)]
        if len(parts) == 1:
            return parts[0]
        even = ir.Constant(ir.VectorType(I32, v.lanes), [2 * lane for lane in range(v.lanes)])
        return v.builder.shuffle_vector(parts[0], parts[1], even)
