"""Named sequences that find ops by what they are, where handles on them are lost."""


def epilogue_matcher(name: str, sizes: tuple[int, ...], inputs: int) -> str:
    """A matcher for the epilogue: elementwise on a tile of some sizes, with so many inputs."""
    dims = "".join(_sized(index, size) for index, size in enumerate(sizes))
    return f"""\
// Epilogues of {" x ".join(map(str, sizes)) or "one element"}: elementwise, in place.
transform.named_sequence @{name}(%op: !transform.any_op {{transform.readonly}})
    -> !transform.any_op {{
  transform.match.operation_name %op ["linalg.generic"] : !transform.any_op
  transform.match.structured failures(propagate) %op : !transform.any_op {{
  ^bb0(%candidate: !transform.any_op):
{_counted("rank", len(sizes))}{_counted("num_inputs", inputs)}{dims}\
    "transform.match.structured.body"(%candidate) <{{elementwise}}> : (!transform.any_op) -> ()
    transform.match.structured.yield
  }}
  transform.yield %op : !transform.any_op
}}
"""


def _sized(index: int, size: int) -> str:
    lines = [
        f'%dim{index} = "transform.match.structured.dim"(%candidate) '
        f"<{{raw_dim_list = array<i64: {index}>}}>",
        "    : (!transform.any_op) -> !transform.param<i64>",
        f"%size{index} = transform.param.constant {size} : i64 -> !transform.param<i64>",
        f"transform.match.param.cmpi eq %dim{index}, %size{index} : !transform.param<i64>",
    ]
    return "".join(f"    {line}\n" for line in lines)


def _counted(what: str, count: int) -> str:
    lines = [
        f"%{what} = transform.match.structured.{what} %candidate",
        "    : (!transform.any_op) -> !transform.param<i64>",
        f"%wanted_{what} = transform.param.constant {count} : i64 -> !transform.param<i64>",
        f"transform.match.param.cmpi eq %{what}, %wanted_{what} : !transform.param<i64>",
    ]
    return "".join(f"    {line}\n" for line in lines)


def contraction_matcher(name: str, kinds: str | None, body: tuple[str, str]) -> str:
    """A matcher for linalg ops that multiply and accumulate.

    Args:
        name: of the sequence.
        kinds: for each iteration dim `x` (parallel) or `k` (reduction); None for any.
        body: the multiplication and the addition.
    """
    title = f"over {' '.join(kinds)} (k is a reduction)" if kinds else "of any dims"
    dims = _dims(kinds) if kinds else ""
    operations = ", ".join(f'"{operation}"' for operation in body)
    return f"""\
// Contractions {title}.
transform.named_sequence @{name}(%op: !transform.any_op {{transform.readonly}})
    -> !transform.any_op {{
  transform.match.structured failures(propagate) %op : !transform.any_op {{
  ^bb0(%candidate: !transform.any_op):
{dims}    "transform.match.structured.body"(%candidate) <{{contraction = [{operations}]}}>
        : (!transform.any_op) -> ()
    transform.match.structured.yield
  }}
  transform.yield %op : !transform.any_op
}}
"""


def _dims(kinds: str) -> str:
    lines = [
        "%rank = transform.match.structured.rank %candidate",
        "    : (!transform.any_op) -> !transform.param<i64>",
        f"%wanted = transform.param.constant {len(kinds)} : i64 -> !transform.param<i64>",
        "transform.match.param.cmpi eq %rank, %wanted : !transform.param<i64>",
    ]
    for index, kind in enumerate(kinds):
        word = "reduction" if kind == "k" else "parallel"
        lines.append(
            f'"transform.match.structured.dim"(%candidate) '
            f"<{{raw_dim_list = array<i64: {index}>, {word}}}> : (!transform.any_op) -> ()"
        )
    return "".join(f"    {line}\n" for line in lines)
