"""What all steps share. Read from the top, a schedule is the loop nest.

Each step's docstring shows the nest before and after the step, for C[m,n] += A[m,k] B[k,n],
and the name that Halide, TVM and MLIR's transform dialect use for it.
"""

from dataclasses import dataclass, fields
from typing import ClassVar, Literal

Operand = Literal["A", "B"]
Axis = Literal["rows", "cols"]
StepJson = dict[str, str | int]


@dataclass(frozen=True)
class Step:
    """One step; subclasses are frozen values with a JSON form."""

    name: ClassVar[str]

    def to_json(self) -> StepJson:
        """`{"step": name, ...fields}`."""
        return {"step": self.name, **vars(self)}

    def __str__(self) -> str:
        pairs = " ".join(f"{f.name}={getattr(self, f.name)}" for f in fields(self))
        return f"{self.name} {pairs}"
