"""`tile`: visit a dim of the result in blocks."""

from collections.abc import Iterable
from typing import Any, ClassVar

from tilewise.kernels.block_sizes import equal_block
from tilewise.kernels.nest import Fetched, Loop, LoopKind, Nest, Role
from tilewise.kernels.steps.base import Part, Step, register_step


@register_step
class Tile(Step):
    """Visit a dim of the result in blocks of `size`. Halide split, TVM split, tile_using_for.

        tile dim=n size=64
    before                          after
        for n step 16: tiles            for n step 64:
                                            for n step 16: tiles
    """

    name: ClassVar[str] = "tile"
    choices: ClassVar[tuple[str, ...]] = ("lead", "cols", "rows", "image_rows")
    dim: str
    size: int

    @classmethod
    def chosen(cls, choice: str, value: Any, part: Part) -> Iterable[Step]:
        """Return the steps of blocks of about a size, 0 for the whole.

        Of `lead` the value is whether dims that are visited alone are there. Lines of an image are
        cut in blocks of one image, or slice of a volume, at a time.
        """
        nest, steps = part.nest, list[Step]()
        if choice == "lead":
            return visited_alone(nest) if value else ()
        if choice == "cols":
            dim = "co" if nest.group else nest.col
        else:
            dim = nest.row if choice == "rows" else "oh"
        if choice == "image_rows" and (not nest.group or nest.extent("n") > 1):
            steps += [cls(name, 1) for name in nest.rows if nest.dim(name).single]
        size = equal_block(part.extents[dim], value, nest.unit(dim))
        return [*steps, cls(dim, size)] if size < part.extents[dim] else steps

    def check(self, nest: Nest) -> None:
        """Raise unless blocks are whole register tiles of the enclosing block."""
        check_dim_of_result(self, nest, self.dim)
        enclosing = nest.enclosing(self.dim)
        if self.size >= enclosing and enclosing != nest.part(self.dim):
            raise self.refused(nest, f"the enclosing block is only {enclosing}")
        unit = nest.unit(self.dim)
        if self.size % unit:
            why = f"the size is not a multiple of the register tile's {unit}"
            raise self.refused(nest, why)
        if nest.dim(self.dim).single:
            if self.size != 1:
                raise self.refused(nest, f"{self.dim} is visited one at a time; give size=1")
            if any(nest.stage(role) and self.dim in nest.operand(role).dims for role in "AB"):
                raise self.refused(nest, "an operand that it moves is already packed")
        check_fetched_block(self, nest, self.dim)

    def apply(self, nest: Nest) -> Nest:
        """Put a loop around the macro-kernel."""
        return nest.around(Loop(self.dim, self.size, LoopKind.TILE))


def visited_alone(nest: Nest) -> tuple[Tile, ...]:
    """Return the steps without which no schedule is complete: loops over batch and groups."""
    return tuple(Tile(dim, 1) for dim in nest.named(Role.LEAD))


def check_dim_of_result(step: Step, nest: Nest, dim: str) -> None:
    """Raise unless a step names a dim of the result that can be cut."""
    dims = [name for name in nest.scheduled if name != nest.k]
    if dim not in dims:
        raise step.refused(nest, f"{step.name} takes one of the dims {', '.join(dims)}")
    if nest.group and dim == "ow":
        raise step.refused(nest, "a line is computed whole; drop the step")


def check_fetched_block(step: Step, nest: Nest, dim: str) -> None:
    """Raise where the next block of a B in place is fetched, and a loop would cut that block."""
    is_fetched = any(fetch.what is Fetched.NEXT_BLOCK for fetch in nest.fetches)
    if is_fetched and not nest.stage("B") and dim in (nest.col, nest.k):
        why = f"loops over {nest.col} and {nest.k} come before the prefetch of a B in place"
        raise step.refused(nest, why)
