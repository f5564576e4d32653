"""`nontemporal`: write the result past the caches."""

from collections.abc import Iterable
from typing import Any, ClassVar, Literal

from tilewise.kernels.nest import Nest, Store
from tilewise.kernels.steps.base import Part, Place, Step, register_step


@register_step
class Nontemporal(Step):
    """Write the result to memory past the caches, by non-temporal stores.

    MLIR `vector.store {nontemporal}`, OpenMP nontemporal. The native lowering alone: scripts say it
    in a comment.

        nontemporal operand=C
    before                          after
        store C                         store C  # past the caches

    An ordinary store fetches the line that it writes. Where the result is larger than the caches,
    or is not in them, that is a third of all that moves.
    """

    name: ClassVar[str] = "nontemporal"
    place: ClassVar[Place] = Place.STORE
    words: ClassVar[dict[str, tuple[str, ...]]] = {"operand": ("C",)}
    choices: ClassVar[tuple[str, ...]] = ("nontemporal",)
    operand: Literal["C"] = "C"

    @classmethod
    def chosen(cls, choice: str, value: Any, part: Part) -> Iterable[Step]:
        """Return the step where it is wanted."""
        return [cls()] if value else []

    def check(self, nest: Nest) -> None:
        """Raise unless each element is stored once, in whole lines of the cache."""
        if nest.store.finishes_apart:
            why = "out, add, gelu and silu store C by a function of its own; drop the step"
            raise self.refused(nest, why)
        if nest.group:
            return
        if not nest.algorithm:
            raise self.refused(nest, "only where a group has few channels; drop the step")
        if not nest.algorithm.tiles_pixels:
            why = f"it cannot be combined with {nest.algorithm.name}; drop the step"
            raise self.refused(nest, why)
        if not nest.operand("C").is_contiguous(nest.col):
            why = "in layout=nchw_fchw a pixel's channels have no line of their own; drop the step"
            raise self.refused(nest, why)

    def apply(self, nest: Nest) -> Nest:
        """Set the kind of store."""
        return nest.with_fields(Store, is_nontemporal=True)
