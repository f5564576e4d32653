"""Problems: what is computed, as a frozen value with one canonical string."""

from tilewise.kernels.problem.base import ACCURACIES, Accuracy, Problem
from tilewise.kernels.problem.convolution import Conv2d, Conv3d, Convolution
from tilewise.kernels.problem.keys import (
    DTYPES,
    EPILOGUES,
    SIGNIFICAND_BITS,
    STORED,
    DType,
    Epilogue,
)
from tilewise.kernels.problem.model import Matmul
from tilewise.kernels.problem.parse import parse_problem, with_accuracy
from tilewise.kernels.problem.ranges import (
    MOST_DIMS,
    ProblemRange,
    Size,
    from_plain,
    parse_any,
    parse_range,
    sizes_text,
    to_plain,
)
from tilewise.kernels.problem.stem import stem

__all__ = [
    "ACCURACIES",
    "DTYPES",
    "EPILOGUES",
    "MOST_DIMS",
    "SIGNIFICAND_BITS",
    "STORED",
    "Accuracy",
    "Conv2d",
    "Conv3d",
    "Convolution",
    "DType",
    "Epilogue",
    "Matmul",
    "Problem",
    "ProblemRange",
    "Size",
    "from_plain",
    "parse_any",
    "parse_problem",
    "parse_range",
    "sizes_text",
    "stem",
    "to_plain",
    "with_accuracy",
]
