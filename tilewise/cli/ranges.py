"""Results of ranges as commands print them, next to those of single sizes."""

import sys

from tilewise.cli.render import LABEL, listed, print_result
from tilewise.formats.trials import steps_text
from tilewise.kernels.quoting import columns, duration
from tilewise.schema.base import Json
from tilewise.search.progress import SearchPhase
from tilewise.search.ranges.result import size_text

DOES = {"samples": "searches sample", "variants": "times the finalists at sample"}


def say_phase(phase: SearchPhase) -> None:
    """Print the phase of a range's tuning to stderr."""
    does = DOES.get(phase.name, phase.name)
    sys.stderr.write(f"tilewise: {does} {phase.done + 1} of {phase.total}\n")


def print_found(found: Json, *, as_json: bool, with_machine: bool = False) -> None:
    """Print the object of a problem or a range."""
    if as_json or "variants" not in found:
        print_result(found, as_json=as_json, with_machine=with_machine)
    else:
        sys.stdout.write(range_text(found))


def range_text(found: Json) -> str:
    """Format variants, the sizes that each serves, and the times at the samples."""
    loss, count = found["loss"], len(found["variants"])
    lines = [
        ("problem", found["problem"]),
        ("target", found["target"]),
        ("toolchain", found["toolchain"] + ("  (stale)" if found["stale"] else "")),
        ("variants", f"{count}; at the samples they take {loss['geometric_mean']:.1%} longer than "
                     f"the fastest schedule of each, at most {loss['worst']:.1%}"),
        ("weights", f"{found['formats']} packed copies" if found["formats"] > 1 else ""),
    ]  # fmt: skip
    for index, variant in enumerate(found["variants"]):
        sizes = "; ".join(
            size_text(found, first, last)
            for first, last, chosen in found["spans"]
            if chosen == index
        )
        lines.append((f"variant {index}", f"{variant['hash']}  {sizes}"))
        lines += [("", line) for line in steps_text(variant["steps"]).splitlines()]
    rows = [("size", "variant", "time", "speed", "of the fastest")]
    for sample in found["samples"]:
        time_us = sample["times_us"][sample["variant"]]
        rows.append(
            (
                size_text(found, sample["size"]),
                str(sample["variant"]),
                duration(time_us),
                f"{sample['gflops']:.1f} GFLOP/s",
                f"{sample['best_us'] / time_us:.1%}",
            )
        )
    lines += zip(["samples", *[""] * len(found["samples"])], columns(rows), strict=True)
    taken = f"{found['trials']} trials at each sample, {found['elapsed_s']:.1f} s in all"
    lines.append(("searched", taken))
    width = max(LABEL, *(len(label) + 2 for label, _ in lines))
    return listed(lines, width)
