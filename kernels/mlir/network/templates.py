"""The named sequences of scripts of whole modules, by the names of their templates."""

from pathlib import Path

from tilewise.kernels.mlir.transform.sequences import filled

NAMED_SEQUENCES = Path(__file__).with_name("named_sequences")


def network_sequence(template: str, **values: object) -> str:
    """The text of a named sequence, or of a part of one."""
    return filled(NAMED_SEQUENCES / f"{template}.mlir", **values)
