"""Scripts of convolutions with few channels in a group: the result is cut into panes.

Loops are made of the op that writes the result to C; the contraction is computed where that op
reads it, and so are the zeros that its sums start from. What a pane reads of a padded image is
either the image itself, in place, or known tap by tap; then taps in the padding are left out.
Where that would be too much code, and where vectors run along a line, a pane copies its part of
the image with the padding.
"""

from dataclasses import replace

from tilewise.kernels.mlir.cpu.borders import Axis, Pane, parts
from tilewise.kernels.mlir.cpu.loops import blocks
from tilewise.kernels.mlir.cpu.window_tiles import (
    TapTiles,
    WindowTiles,
    columns_of_blocks,
    foldable,
    fuse_spread,
    lanes_along,
)
from tilewise.kernels.mlir.payload.form import Form
from tilewise.kernels.mlir.transform.writer import ANY, Writer
from tilewise.kernels.nest import Loop, LoopKind

MOST_PRODUCTS = 1600
"""Vectors that the code of all panes multiplies, up to which taps in the padding are left out: a
script of so many takes about 2 seconds to apply, lower and compile."""


class WindowEmitter:
    """Writes the loops of a nest whose columns span the groups.

    Args:
        form: of the problem.
        axes: where outputs find their taps, by the dim of the result.
        copies_padding: whether padding is copied together with the image, not left out.

    Attributes:
        writer: what was written.
        panes: what the loops so far made of the result.
    """

    def __init__(self, form: Form, axes: dict[str, Axis], copies_padding: bool) -> None:
        self.form = form
        self.axes = axes
        self.copies_padding = copies_padding
        self.writer = Writer()
        extents = {**form.nest.extents, **form.group_extents}
        starts = dict.fromkeys(axes, 0) if form.pads_image or form.pads_parts else {}
        self.panes = [Pane("%result", "%contraction", extents, starts)]

    @classmethod
    def of(cls, form: Form, axes: dict[str, Axis]) -> "WindowEmitter":
        """One that has written its loops, without padding where that is possible."""
        nest = form.nest
        most = max(nest.dim(nest.k).extent, *form.tap_extents.values())
        copies = nest.col == "ow" or form.spreads_channels or most == 1
        loops = cls(form, axes, copies)
        loops.run()
        if form.pads_image and not copies and loops.tiles.products > MOST_PRODUCTS:
            loops = cls(form, axes, copies_padding=True)
            loops.run()
        loops.tiles.vectorize()
        return loops

    def run(self) -> None:
        """Write every loop down to the register tile."""
        for node in blocks(self.form.nest, self.writer):
            if isinstance(node, Loop):
                self._tile(node)
            else:
                self.tiles.take_apart()

    @property
    def tiles(self) -> WindowTiles:
        """What the loops leave."""
        kind = TapTiles if TapTiles.serve(self.form, self.panes) else WindowTiles
        return kind(self.form, self.writer, self.panes)

    def _tile(self, loop: Loop) -> None:
        """Tile all panes; one that is no larger than a block is cut into vectors by registers."""
        dim, of_registers = loop.dim, loop.kind is LoopKind.MICRO
        if of_registers and self.copies_padding and dim == "oh":
            self.panes = [self._copied(pane) for pane in reversed(self.panes)][::-1]
        size = columns_of_blocks(self.form, dim, loop.step)
        cuts = [(p, size if of_registers else min(size, p.extents[dim])) for p in self.panes]
        found = [part for pane, largest in cuts for part in self._divided(pane, dim, largest)]
        self.panes = [self._loop(pane, dim, size) for pane in found]

    def _divided(self, pane: Pane, dim: str, size: int) -> list[Pane]:
        """Parts of a pane whose blocks of `size` are alike, each with a product of its own."""
        found = parts(
            pane.extents[dim],
            size,
            lanes_along(self.form, dim),
            pane.starts.get(dim),
            self.axes.get(dim),
        )
        found = [block for part in found for block in foldable(self.form, dim, part, size)]
        if len(found) == 1:
            return [replace(pane, starts=pane.part(pane.result, dim, found[0]).starts)]
        w = self.writer
        w.line(f"// {dim} = {' + '.join(str(part.extent) for part in found)}")
        index, rest, heads = self.form.result_dims.index(dim), pane.result, []
        for part in found[:-1]:
            both, head, tail = w.name("split"), w.name(f"{dim}_head"), w.name(f"{dim}_rest")
            w.line(
                f"{both} = transform.structured.split {rest} after {part.extent} "
                f"{{dimension = {index}}} : {ANY}"
            )
            w.line(f"{head}, {tail} = transform.split_handle {both} : ({ANY}) -> ({ANY}, {ANY})")
            heads.append(head)
            rest = tail
        return self._apart(
            pane, [*heads, rest], [pane.part(pane.result, dim, part) for part in found]
        )

    def _apart(self, pane: Pane, handles: list[str], found: list[Pane]) -> list[Pane]:
        """A product and an image of its own for each part of a pane.

        From the last one to the first: what is computed for one would else be taken for those
        that follow.
        """
        w, boxes, out = self.writer, list[str](), list[tuple[Pane, str]]()
        for index, handle in enumerate(handles):
            handles[index], box = w.boxed(handle)
            boxes.append(box)
        w.merge_slices(boxes)
        operand = int(bool(self.form.bias_dims))
        for part, handle, box in reversed(list(zip(found, handles, boxes, strict=True))):
            source = w.sliced(handle, operand) if len(found) > 1 else pane.product
            product, around = w.fuse(source, box, "product")
            out.append((replace(part, result=handle, product=product), around))
        if pane.starts:
            w.merge_slices([around for _, around in out])
            for part, around in out:
                w.fuse(w.sliced(part.product, self.form.image_operand), around, "image")
        w.include("cleanup")
        return [part for part, _ in reversed(out)]

    def _loop(self, pane: Pane, dim: str, size: int) -> Pane:
        """Tile one pane; one of a single block needs no loop."""
        if pane.extents[dim] <= size:
            return pane
        w = self.writer
        tiled, loop = w.name(f"{dim}_block"), w.name(f"{dim}_loop")
        sizes = [*(0 for _ in self.form.result_dims[: self.form.result_dims.index(dim)]), size]
        w.line(
            f"{tiled}, {loop} = transform.structured.tile_using_forall {pane.result} "
            f"tile_sizes {sizes} : ({ANY}) -> ({ANY}, {ANY})"
        )
        product, _ = w.fuse(pane.product, loop, f"{dim}_product")
        return replace(pane, result=tiled, product=product, extents={**pane.extents, dim: size})

    # Padding

    def _copied(self, pane: Pane) -> Pane:
        """A pane whose part of the image is copied with its padding, after those that follow it."""
        if self.form.gathers_lines or (self.form.spreads_channels and self.form.pads_lines):
            return self._gathered(pane)
        if self.form.splits_lines:
            return self._split(pane)
        if "ow" not in pane.starts:
            return pane  # lines beside the image are left out tap by tap
        (copied,) = self._apart(pane, [pane.result], [pane])
        self._copy_lines(copied.product, self.form.image_operand)
        return replace(copied, starts={})

    def _copy_lines(self, user: str, operand: int) -> tuple[str, list[str]]:
        """What an op reads of the padded image, copied line by line: the copy and its loops."""
        lines = self.writer.copied(user, operand)
        return self.writer.tile_for(lines, self.form.line_sizes)

    def _gathered(self, pane: Pane) -> Pane:
        """A pane that gathers the lines of its part of the image."""
        w, form = self.writer, self.form
        result, box = w.boxed(pane.result)
        product, box = w.fuse(pane.product, box, "product")
        w.merge_slices([box])
        if form.spreads_channels:
            lines, box = fuse_spread(w, form, product, box)
        else:
            lines, box = w.fuse(w.sliced(product, form.image_operand), box, "lines")
        if form.pads_lines:
            w.merge_slices([box])
            w.fuse(w.sliced(lines, 0), box, "image")
        w.include("cleanup")
        if form.pads_lines:
            self._copy_lines(lines, 0)
        return replace(pane, result=result, product=product)

    def _split(self, pane: Pane) -> Pane:
        """A pane that parts the lines of its part of the image, plane by plane."""
        w, image = self.writer, self.form.image_operand
        if pane.starts:
            (copied,) = self._apart(pane, [pane.result], [pane])
            line, loops = self._copy_lines(copied.product, image)
            w.merge_slices(loops[:1])
            w.fuse(w.sliced(line, 0), loops[-1], "parted")
            return replace(copied, starts={})
        result, box = w.boxed(pane.result)
        product, box = w.fuse(pane.product, box, "product")
        w.merge_slices([box])
        parted, _ = w.fuse(w.sliced(product, image), box, "parted")
        w.include("cleanup")
        w.tile_for(parted, [1, 1, 1])
        return replace(pane, result=result, product=product)


def padding_of_blocks(form: Form) -> Form:
    """The form whose padded image is copied ahead where a loop goes over blocks of its lines.

    Upstream cannot tell that a block at an unknown place is not of padding alone, and asks before
    it copies one.
    """
    nest = form.nest
    goes_over_lines = any(
        loop.dim in nest.rows and 2 * loop.step <= nest.dim(loop.dim).extent
        for loop in nest.loops_of(LoopKind.PARALLEL, LoopKind.TILE)
    )
    return replace(form, pads_lines=form.pads_lines and not goes_over_lines)
