"""Which processors can run each other's kernels, by the instruction-set extensions they have."""

from collections.abc import Collection

from tilewise.kernels.target.detect import vector_unit
from tilewise.kernels.target.features import EXTENSIONS


def can_run(kernels_of: Collection[str], on: Collection[str]) -> bool:
    """Whether a processor runs the kernels that were generated for another, as they are.

    Their vector registers have to be the same in width and number, since schedules are made of
    both, and each extension that is used has to be there.

    Args:
        kernels_of: the features of the processor that kernels were generated for.
        on: those of the processor that is to run them.
    """
    same_vectors = vector_unit(frozenset(kernels_of)) == vector_unit(frozenset(on))
    return same_vectors and EXTENSIONS & set(kernels_of) <= EXTENSIONS & set(on)


def likeness(first: Collection[str], second: Collection[str]) -> float:
    """How much two processors have in common: shared features over all of them, 0 to 1."""
    either = set(first) | set(second)
    return len(set(first) & set(second)) / len(either) if either else 1.0
