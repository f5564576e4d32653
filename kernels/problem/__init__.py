"""Problems: what is computed, as a frozen value with one canonical string."""

from tilewise.kernels.problem.base import ACCURACIES, Accuracy, Problem
from tilewise.kernels.problem.keys import (
    DTYPES,
    EPILOGUES,
    SIGNIFICAND_BITS,
    STORED,
    DType,
    Epilogue,
)
from tilewise.kernels.problem.model import Conv2d, Matmul
from tilewise.kernels.problem.parse import parse_problem, stem, with_accuracy

__all__ = [
    "ACCURACIES",
    "DTYPES",
    "EPILOGUES",
    "SIGNIFICAND_BITS",
    "STORED",
    "Accuracy",
    "Conv2d",
    "DType",
    "Epilogue",
    "Matmul",
    "Problem",
    "parse_problem",
    "stem",
    "with_accuracy",
]
