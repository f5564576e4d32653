import numpy as np

from tilewise.kernels.problem import parse_problem
from tilewise.model.report import tolerance


def test_it_covers_two_orders_of_every_sum_and_nothing_like_a_lost_column() -> None:
    random = np.random.default_rng(3)
    layers, size = 6, 192
    weights = [random.standard_normal((size, size)) / size**0.5 for _ in range(layers)]
    x = random.standard_normal((16, size))
    one = other = x.astype(np.float32)
    for weight in weights:
        narrow = weight.astype(np.float32)
        order = random.permutation(size)
        one = one @ narrow
        other = sum((other[:, [i]] * narrow[[i]] for i in order), np.zeros_like(other))
    apart = np.sqrt(np.mean((one - other) ** 2) / np.mean(one**2))
    problem = parse_problem(f"matmul:m=16,n={size},k={size},dtype=f32")
    allowed = tolerance([(problem, layers)])
    assert 0 < apart < allowed
    lost = one.copy()
    lost[:, 7] = 0
    assert np.sqrt(np.mean((lost - one) ** 2) / np.mean(one**2)) > 100 * allowed


def test_narrow_operands_allow_their_own_rounding() -> None:
    narrow = tolerance([(parse_problem("matmul:m=16,n=64,k=64,dtype=bf16"), 4)])
    wide = tolerance([(parse_problem("matmul:m=16,n=64,k=64,dtype=f32"), 4)])
    whole = tolerance([(parse_problem("matmul:m=16,n=64,k=64,dtype=i8"), 4)])
    assert whole < wide < narrow < 0.02


def test_longer_sums_are_allowed_more() -> None:
    short, long = (
        tolerance([(parse_problem(f"matmul:m=16,n=64,k={depth},dtype=f32"), 1)])
        for depth in (1, 2**20)
    )
    assert long > 100 * short
