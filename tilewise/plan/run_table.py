"""A run of a planned network as text for people."""

from collections.abc import Iterator

from tilewise.kernels.durations import duration
from tilewise.model.report import overwritten
from tilewise.plan.running import Ran

MIB = 1 << 20
CHOSEN, OWN = "as chosen", "model's layouts"
_HEAD = ("node", "part", "time", "share")


def run_text(run: Ran, allowed: float) -> str:
    """Each part, the whole beside IREE's own code, memory, and how far the results are apart.

    Args:
        run: what was measured.
        allowed: the deviation that is.
    """
    lines = [*_parts(run), "", *_whole(run, allowed)]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _parts(run: Ran) -> Iterator[str]:
    total = sum(part.time_us for part in run.parts)
    rows = [_HEAD] + [
        ("" if part.node is None else str(part.node), part.label, duration(part.time_us),
         f"{100 * part.time_us / total:.1f}%")
        for part in run.parts
    ]  # fmt: skip
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEAD))]
    for node, part, time, share in rows:
        yield (f"{node:>{widths[0]}}  {part:<{widths[1]}}  {time:>{widths[2]}}  "
               f"{share:>{widths[3]}}")  # fmt: skip


def _whole(run: Ran, allowed: float) -> Iterator[str]:
    yield f"the network     {run.time_ms:.3f} ms"
    if run.other_ms is not None:
        other = OWN if run.kept == 0 else CHOSEN
        yield f"{other:<15} {run.other_ms:.3f} ms   {run.other_ms / run.time_ms:.2f}x, slower"
    yield f"IREE alone      {run.iree_ms:.3f} ms   {run.iree_ms / run.time_ms:.2f}x"
    yield (f"activations     {run.arena_bytes / MIB:.2f} MiB; {run.buffers_bytes / MIB:.2f} MiB "
           "if no buffer shared memory with another")  # fmt: skip
    yield f"weights         {run.weights_bytes / MIB:.2f} MiB"
    if not run.iree_deviation <= allowed:
        why = overwritten(run.iree_overwrites)
        yield (f"IREE is wrong   {run.iree_deviation:.1e} from the model's results"
               f"{': it' if why else ''}{why}")  # fmt: skip
    yield f"apart           {run.deviation:.1e} from the model's results; {allowed:.1e} is allowed"
