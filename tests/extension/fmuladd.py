"""An instruction: LLVM's `fmuladd`, which becomes a fused multiply-add where there is one."""

from tilewise.kernels.instructions import Form, Instruction
from tilewise.kernels.instructions.declaration import fused

FMULADDS = tuple(
    Instruction(
        f"{unit}.fmuladd.f32",
        rows=1,
        cols=cols,
        k=1,
        a="f32",
        b="f32",
        c="f32",
        meaning=fused,
        intrinsic="llvm.fmuladd.{}",
        arguments=("x", "y", "acc"),
        assembly=r"vfmadd(132|213|231)ps|fmla",
        features=features,
        forms=frozenset({Form.OUTER_PRODUCT}),
    )
    for unit, cols, features in (
        ("x86.avx512", 16, frozenset({"fma"})),
        ("x86.avx2", 8, frozenset({"fma"})),
        ("arm.neon", 4, frozenset[str]()),
    )
)
