"""Scripts of convolutions with few channels in a group, with interior and border separate.

Loops are made of the op that writes the result to C; the contraction and its zeros are fused where
that op reads them. A region of a padded image reads either the image in place, or known taps, of
which those in the padding are left out. Where that would be too much code, and where vectors run
along a line, a region copies its part of the image with the padding.
"""

from dataclasses import replace

from tilewise.kernels.mlir.cpu.borders import ImageAxis, OutputPart, Region, parts
from tilewise.kernels.mlir.cpu.grouped_conv_tiles import (
    GroupedConvTiles,
    TapTiles,
    divides_groups,
    fuse_spread,
    lanes_along,
)
from tilewise.kernels.mlir.cpu.loops import blocks
from tilewise.kernels.mlir.payload.form import LinalgForm
from tilewise.kernels.mlir.transform.writer import SequenceWriter
from tilewise.kernels.nest import Loop, LoopKind

MOST_PRODUCTS = 1600
"""Vectors that the code of all regions multiplies, up to which taps in the padding are left out: a
script of so many takes about 2 seconds to apply, lower and compile."""
MOST_BLOCKS = 4
"""Blocks of columns that are written out one by one; 21 of 2x48 take longer than a minute."""


class GroupedConvEmitter:
    """Writes the loops of a nest whose columns span the groups.

    `axes` say where outputs find their taps, by the dim of the result. With `copies_padding`
    padding is copied with the image instead of left out. `regions` are the parts of the result so
    far.
    """

    def __init__(self, form: LinalgForm, axes: dict[str, ImageAxis], copies_padding: bool) -> None:
        self.form, self.axes, self.copies_padding = form, axes, copies_padding
        self.writer = SequenceWriter()
        extents = {**form.nest.extents, **form.group_extents}
        starts = dict.fromkeys(axes, 0) if form.pads_image or form.pads_parts else {}
        self.regions = [Region("%result", "%contraction", extents, starts)]

    @classmethod
    def of(cls, form: LinalgForm, axes: dict[str, ImageAxis]) -> "GroupedConvEmitter":
        """Return an emitter that has written its loops, without padding if possible."""
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
    def tiles(self) -> GroupedConvTiles:
        """The register tiles inside of the loops."""
        kind = TapTiles if TapTiles.serve(self.form, self.regions) else GroupedConvTiles
        return kind(self.form, self.writer, self.regions)

    def _tile(self, loop: Loop) -> None:
        """Tile all regions; the register tile's loops split smaller regions into vectors."""
        dim, of_registers = loop.dim, loop.kind is LoopKind.MICRO
        if of_registers and self.copies_padding and dim == "oh":
            self.regions = [self._copied(region) for region in reversed(self.regions)][::-1]
        size = self._block_size(dim, loop.step)
        cuts = [(r, size if of_registers else min(size, r.extents[dim])) for r in self.regions]
        found = [part for region, largest in cuts for part in self._divided(region, dim, largest)]
        self.regions = [self._loop(region, dim, size) for region in found]

    def _block_size(self, dim: str, size: int) -> int:
        """Return the size of a block; less if `_foldable` would write too many blocks."""
        form = self.form
        if not self._is_spread(dim) or divides_groups(form, size):
            return size
        if form.nest.dim("co").extent // size <= MOST_BLOCKS:
            return size
        channels = form.group_extents["f"]
        fewer = range(size - channels, lanes_along(form, form.nest.col) - 1, -channels)
        return next((cols for cols in fewer if divides_groups(form, cols)), size)

    def _foldable(self, dim: str, part: OutputPart, size: int) -> list[OutputPart]:
        """Split a part into blocks if upstream cannot fold a slice of a loop's block.

        `bubble_up_extract_slice` takes a slice of merged groups at an unknown position only if
        their number divides that of all groups, and any slice at a known one.
        """
        if part.extent <= size or not self._is_spread(dim) or divides_groups(self.form, size):
            return [part]
        return [replace(part, extent=size)] * (part.extent // size)

    def _is_spread(self, dim: str) -> bool:
        return self.form.spreads_channels and dim == self.form.nest.col

    def _divided(self, region: Region, dim: str, size: int) -> list[Region]:
        """Split a region so that its blocks of `size` are alike, each part with its own product."""
        lanes, start = lanes_along(self.form, dim), region.starts.get(dim)
        found = parts(region.extents[dim], size, lanes, start, self.axes.get(dim))
        found = [block for part in found for block in self._foldable(dim, part, size)]
        if len(found) == 1:
            return [replace(region, starts=region.part(dim, found[0]).starts)]
        w = self.writer
        w.line(f"// {dim} = {' + '.join(str(part.extent) for part in found)}")
        axis, rest, heads = self.form.result_dims.index(dim), region.result, []
        for part in found[:-1]:
            head, rest = w.split(rest, part.extent, axis, dim)
            heads.append(head)
        return self._apart(region, [*heads, rest], [region.part(dim, part) for part in found])

    def _apart(self, region: Region, handles: list[str], found: list[Region]) -> list[Region]:
        """Give each part of a region a product and an image of its own.

        Last to first: what is computed for one would otherwise be taken for the following ones.
        """
        w, boxes, out = self.writer, list[str](), list[tuple[Region, str]]()
        for index, handle in enumerate(handles):
            handles[index], box = w.boxed(handle)
            boxes.append(box)
        w.merge_slices(boxes)
        operand = int(bool(self.form.bias_dims))
        for part, handle, box in reversed(list(zip(found, handles, boxes, strict=True))):
            source = w.sliced(handle, operand) if len(found) > 1 else region.product
            product, around = w.fuse(source, box, "product")
            out.append((replace(part, result=handle, product=product), around))
        if region.starts:
            w.merge_slices([around for _, around in out])
            for part, around in out:
                w.fuse(w.sliced(part.product, self.form.image_operand), around, "image")
        w.include("cleanup")
        return [part for part, _ in reversed(out)]

    def _loop(self, region: Region, dim: str, size: int) -> Region:
        """Tile one region; one of a single block needs no loop."""
        if region.extents[dim] <= size:
            return region
        w = self.writer
        tiled, loop = w.tile(region.result, self.form.result_dims.index(dim), size, dim)
        product, _ = w.fuse(region.product, loop, f"{dim}_product")
        extents = {**region.extents, dim: size}
        return replace(region, result=tiled, product=product, extents=extents)

    # Padding

    def _copied(self, region: Region) -> Region:
        """Copy a region's part of the image with its padding, after those that follow it."""
        if self.form.gathers_lines or (self.form.spreads_channels and self.form.pads_lines):
            return self._gathered(region)
        if self.form.splits_lines:
            return self._split(region)
        if "ow" not in region.starts:
            return region  # lines of padding are left out tap by tap
        (copied,) = self._apart(region, [region.result], [region])
        self._copy_lines(copied.product, self.form.image_operand)
        return replace(copied, starts={})

    def _copy_lines(self, user: str, operand: int) -> tuple[str, list[str]]:
        """Copy what an op reads of the padded image line by line; return the copy and its loops."""
        return self.writer.tile_for(self.writer.copied(user, operand), self.form.line_sizes)

    def _gathered(self, region: Region) -> Region:
        """Gather the lines of a region's part of the image."""
        w, form = self.writer, self.form
        result, box = w.boxed(region.result)
        product, box = w.fuse(region.product, box, "product")
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
        return replace(region, result=result, product=product)

    def _split(self, region: Region) -> Region:
        """Split the lines of a region's part of the image, plane by plane."""
        w, image = self.writer, self.form.image_operand
        if region.starts:
            (copied,) = self._apart(region, [region.result], [region])
            line, loops = self._copy_lines(copied.product, image)
            w.merge_slices(loops[:1])
            w.fuse(w.sliced(line, 0), loops[-1], "parted")
            return replace(copied, starts={})
        result, box = w.boxed(region.result)
        product, box = w.fuse(region.product, box, "product")
        w.merge_slices([box])
        parted, _ = w.fuse(w.sliced(product, image), box, "parted")
        w.include("cleanup")
        w.tile_for(parted, [1, 1, 1])
        return replace(region, result=result, product=product)


def padding_of_blocks(form: LinalgForm) -> LinalgForm:
    """Return the form whose padded image is copied ahead if a loop runs over blocks of lines.

    Upstream cannot tell that a block at an unknown position is not only padding.
    """
    nest = form.nest
    goes_over_lines = any(
        loop.dim in nest.rows and 2 * loop.step <= nest.dim(loop.dim).extent
        for loop in nest.loops_of(LoopKind.PARALLEL, LoopKind.TILE)
    )
    return replace(form, pads_lines=form.pads_lines and not goes_over_lines)
