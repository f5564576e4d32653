"""The problems whose spaces are recorded, by the names of their files."""

from dataclasses import replace

from tilewise.kernels.problem import Conv2d, Matmul, Problem, parse_problem

PROBLEMS = {
    "large-f32": "matmul:m=1024,n=1024,k=1024,dtype=f32",
    "skinny-f32": "matmul:m=16,n=1024,k=1024,dtype=f32",
    "tiny-f32": "matmul:m=64,n=64,k=64,dtype=f32",
    "odd-f32": "matmul:m=333,n=511,k=257,dtype=f32",
    "square-i32": "matmul:m=512,n=512,k=512,dtype=i32",
    "square-bf16": "matmul:m=768,n=768,k=768,dtype=bf16",
    "conv3x3-f32": "conv2d:n=1,h=58,w=58,ci=64,co=64,kh=3,kw=3,dtype=f32",
    "conv1x1-f32": "conv2d:n=1,h=28,w=28,ci=512,co=128,kh=1,kw=1,dtype=f32",
}
METHODS = {
    "depthwise-f32": "conv2d:n=1,h=56,w=56,ci=144,co=144,kh=3,kw=3,dtype=f32,pad=1,groups=144",
    "planes-f32": "conv2d:n=1,h=28,w=28,ci=120,co=120,kh=5,kw=5,dtype=f32,pad=2,stride=2,"
    "groups=120,layout=nchw_fchw",
    "filtering-f32": "conv2d:n=1,h=28,w=28,ci=128,co=128,kh=3,kw=3,dtype=f32,pad=1,"
    "weights=constant",
    "sweep-bf16": "matmul:m=8,n=2048,k=2048,dtype=bf16",
    "column-f32": "matmul:m=1000,n=1,k=1000,dtype=f32",
    "tiles-bf16": "matmul:m=768,n=768,k=768,dtype=bf16",
    "tiles-i8": "matmul:m=768,n=768,k=768,dtype=i8",
}
"""A problem for each kind of kernel beside the blocked one: windows of both layouts, minimal
filtering, sweeps, partial sums along k, and matrix tiles (on a processor that has them)."""
UNSEEN = {
    "unseen-f32": "matmul:m=128,n=3072,k=768,dtype=f32",
    "unseen-skinny-f32": "matmul:m=12,n=2048,k=768,dtype=f32",
    "unseen-odd-f32": "matmul:m=200,n=517,k=391,dtype=f32",
    "unseen-bf16": "matmul:m=512,n=1024,k=640,dtype=bf16",
    "unseen-conv3x3-f32": "conv2d:n=1,h=30,w=30,ci=128,co=128,kh=3,kw=3,dtype=f32",
    "unseen-conv1x1-f32": "conv2d:n=1,h=14,w=14,ci=1024,co=256,kh=1,kw=1,dtype=f32",
}
"""Shapes that no weight was fitted to and no sampler was chosen on; the rule of evidence in
`tilewise.search.transfer.calibration` was chosen with them in view."""


def relatives(problem: Problem) -> dict[str, Problem]:
    """Two near problems: rows (of a convolution, pixels each way) doubled, and columns halved.

    What does not halve is rounded up, a convolution's columns in each group; a problem with a
    single column has only the first.
    """
    if isinstance(problem, Matmul):
        rows: Problem = replace(problem, m=2 * problem.m)
        cols: Problem = replace(problem, n=-(-problem.n // 2))
    else:
        assert isinstance(problem, Conv2d)
        down, across = problem.strides
        h, w = problem.h + down * problem.oh, problem.w + across * problem.ow
        rows = replace(problem, h=h, w=w)
        in_group = problem.co // problem.groups
        cols = replace(problem, co=-(-in_group // 2) * problem.groups)
    return {kind: near for kind, near in (("rows", rows), ("cols", cols)) if near != problem}


RELATIVES = {
    f"{name.removeprefix('unseen-')}-{kind}": near.canonical
    for name, text in UNSEEN.items()
    for kind, near in relatives(parse_problem(text)).items()
}
ALL = PROBLEMS | METHODS | UNSEEN | RELATIVES
