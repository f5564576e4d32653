"""Problems: what is computed, as a frozen value with one canonical string."""

from kernels.problem.base import Problem
from kernels.problem.dtypes import DTYPES, DType
from kernels.problem.model import ACCURACIES, Accuracy, Conv2d, Matmul
from kernels.problem.naming import stem
from kernels.problem.parse import parse_problem, with_accuracy

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
