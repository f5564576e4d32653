"""A copy of a tensor that IREE's compiler keeps.

It drops plain copies of arguments, even where it then writes over one that is read later or
returned (iree-org/iree#16168).
"""

from collections.abc import Sequence


def copy_lines(source: str, target: str, shape: Sequence[int | str], element: str) -> list[str]:
    """Return the lines that make `target` as max(x, min(x, 1)) of `source`: no pass folds it to x.

    Args:
        source: a value.
        target: the copy's name.
        shape: of both; the sizes.
        element: their type.
    """
    tensor = f"tensor<{'x'.join(map(str, (*shape, element)))}>"
    dims = ", ".join(f"d{i}" for i in range(len(shape)))
    same, loops = f"affine_map<({dims}) -> ({dims})>", ", ".join(['"parallel"'] * len(shape))
    is_integer = element.startswith("i")
    least, most, one = (
        ("arith.minsi", "arith.maxsi", "1") if is_integer
        else ("arith.minimumf", "arith.maximumf", "1.0")
    )  # fmt: skip
    return [
        f"{target}_empty = tensor.empty() : {tensor}",
        f"{target}_one = arith.constant {one} : {element}",
        f"{target} = linalg.generic {{indexing_maps = [{same}, {same}], "
        f"iterator_types = [{loops}]}} ins({source} : {tensor}) "
        f"outs({target}_empty : {tensor}) {{",
        f"^bb0(%x: {element}, %out: {element}):",
        f"  %least = {least} %x, {target}_one : {element}",
        f"  %same = {most} %x, %least : {element}",
        f"  linalg.yield %same : {element}",
        f"}} -> {tensor}",
    ]
