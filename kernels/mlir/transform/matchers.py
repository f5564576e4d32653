"""Named sequences that find ops by what they are, where handles on them are lost."""

from tilewise.kernels.mlir.transform.sequences import named_sequence


def epilogue_matcher(name: str, sizes: tuple[int, ...], inputs: int) -> str:
    """A matcher for the epilogue: elementwise on a tile of some sizes, with so many inputs."""
    dims = "".join(
        named_sequence("fragments/dim_has_size", index=index, size=size)
        for index, size in enumerate(sizes)
    )
    return named_sequence(
        "match_epilogue",
        name=name,
        title=" x ".join(map(str, sizes)) or "one element",
        rank=_has_count("rank", "wanted_rank", len(sizes)),
        num_inputs=_has_count("num_inputs", "wanted_num_inputs", inputs),
        dims=dims,
    )


def elementwise_matcher(name: str, rank: int) -> str:
    """A matcher for elementwise ops with so many dims."""
    return named_sequence(
        "match_elementwise",
        name=name,
        title=f"{rank} dims",
        rank=_has_count("rank", "wanted_rank", rank),
    )


def contraction_matcher(name: str, kinds: str | None, body: tuple[str, str]) -> str:
    """A matcher for linalg ops that multiply and accumulate.

    Args:
        name: of the sequence.
        kinds: for each iteration dim `x` (parallel) or `k` (reduction); None for any.
        body: the multiplication and the addition.
    """
    return named_sequence(
        "match_contraction",
        name=name,
        title=f"over {' '.join(kinds)} (k is a reduction)" if kinds else "of any dims",
        dims=_has_kinds(kinds) if kinds else "",
        body=", ".join(f'"{operation}"' for operation in body),
    )


def _has_kinds(kinds: str) -> str:
    """Lines that hold for ops with exactly these kinds of iteration dims."""
    words = ["reduction" if kind == "k" else "parallel" for kind in kinds]
    dims = [
        named_sequence("fragments/dim_has_kind", index=index, kind=word)
        for index, word in enumerate(words)
    ]
    return "".join([_has_count("rank", "wanted", len(kinds)), *dims])


def _has_count(what: str, wanted: str, count: int) -> str:
    """Lines that hold for ops with so many of `what`; `wanted` names the constant."""
    return named_sequence("fragments/has_count", what=what, wanted=wanted, count=count)
