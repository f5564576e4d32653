"""The spellings: what compilers in front of IREE make of the same problem."""

from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True)
class Spelling:
    """How one compiler says a problem, as IREE has it before it begins to optimise.

    Attributes:
        name: whose it is.
        attributes: the type of the lists of strides and dilations.
        transposes: how a matrix is transposed: by the product's maps, by `linalg.transpose`, or by
            a `linalg.generic` that copies. The last one also gives convolutions the layout
            nhwc_hwcf, whatever they had.
        bias: `joined` with relu in one op, `vector` added by an op of its own, `tensor` (the same,
            broadcast before), or `init`: what the sum begins with.
        relu: the larger of a value and 0, or chosen by a comparison.
        relu6: `body`, both limits in one op; `passes`, in two; `scalar`, in two, of which the
            second reads its 6 as an operand; `scalars`, where both do.
    """

    name: str
    attributes: Literal["tensor", "vector"] = "tensor"
    transposes: Literal["maps", "transpose", "generic"] = "maps"
    bias: Literal["joined", "vector", "tensor", "init"] = "joined"
    relu: Literal["maximum", "select"] = "maximum"
    relu6: Literal["body", "passes", "scalar", "scalars"] = "body"


SPELLINGS = (
    Spelling("linalg"),
    Spelling("linalg, an op for each step", bias="vector"),
    Spelling("torch-mlir, linear", "vector", "transpose", "vector", "select"),
    Spelling("torch-mlir, convolution", "vector", "transpose", "init", "select"),
    Spelling("StableHLO", "tensor", "generic", "tensor", "maximum"),
)
"""Those that are known. What a module of torch-mlir's or StableHLO's is at that point shows
`iree-compile --compile-to=preprocessing`."""

_STABLEHLO, _TORCH = SPELLINGS[-1], SPELLINGS[2:4]
OF_RELU6 = (
    *(replace(one, relu6="passes") for one in (SPELLINGS[1], _STABLEHLO)),
    *(replace(one, relu6="scalar") for one in _TORCH),
    *(replace(one, relu6="scalars") for one in _TORCH),
)
"""Further ones of relu6: those of PyTorch's `relu6` and `hardtanh`; its `clamp` is a body."""
