"""Problems: what is computed, as a frozen value with one canonical string."""

from tilewise.kernels.problem.base import ACCURACIES, Accuracy, Problem
from tilewise.kernels.problem.dtypes import DTYPES, DType
from tilewise.kernels.problem.model import Conv2d, Matmul
from tilewise.kernels.problem.naming import stem
from tilewise.kernels.problem.parse import parse_problem, with_accuracy

__all__ = [
    "ACCURACIES",
    "DTYPES",
    "Accuracy",
    "Conv2d",
    "DType",
    "Matmul",
    "Problem",
    "parse_problem",
    "stem",
    "with_accuracy",
]
