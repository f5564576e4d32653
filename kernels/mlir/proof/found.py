"""`Found`: the one reply of a child that proves something."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a child established, and why it stopped if it did.

    Attributes are those of `tilewise.kernels.mlir.proof.proof.Proof`, and what `transform` and
    `verify` ask for:
        outline: loops, copies, buffers and vectors of the transformed module.
        transformed: the module itself.
        unscripted_us: time of the payload lowered without the script.
        inputs: the kind of inputs on which the error is the largest share of what is allowed.
        warnings: what MLIR warned of, each with its location.
    """

    applied: bool = False
    executed: bool = False
    max_error: float | None = None
    tolerance: float | None = None
    gflops: float | None = None
    interval: tuple[float, ...] | None = None
    time_us: float | None = None
    vectorised: bool = False
    apply_s: float = 0.0
    lower_s: float = 0.0
    compile_s: float = 0.0
    processor_s: float = 0.0
    failure: str | None = None
    message: str = ""
    outline: tuple[str, ...] = ()
    transformed: str = ""
    unscripted_us: float | None = None
    inputs: str = ""
    warnings: tuple[str, ...] = ()
