"""A stored result as a piece of HTML, for notebooks."""

from html import escape
from typing import Any

from tilewise.kernels.errors import KernelsError
from tilewise.kernels.schedule import fast_algorithm
from tilewise.service.plots import nest

Json = dict[str, Any]


def result_card(result: Json) -> str:
    """What was measured, and the schedule as a loop nest.

    Args:
        result: as `GET /v1/schedules` gives it.
    """
    rows = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th>"
        f"<td style='text-align:left'>{escape(told)}</td></tr>"
        for name, told in _facts(result)
    )
    try:
        drawing = nest.drawn(result["problem"], result["best"]["steps"])
    except KernelsError:  # steps of a newer version
        drawing = ""
    return f"<div><table>{rows}</table>{drawing}</div>"


def _facts(result: Json) -> list[tuple[str, str]]:
    best, proof = result["best"], result["proof"]
    low, high = best["interval"] or (best["gflops"], best["gflops"])
    facts = [
        ("problem", result["problem"]),
        ("target", f"{result['target']}, {result['cache']} caches"),
        ("speed", f"{best['gflops']:.1f} GFLOP/s, 95% interval {low:.1f} to {high:.1f}"),
    ]
    if best.get("quality") == "noisy":
        facts.append(("quality", "noisy machine: measure again"))
    if best["peak_fraction"]:
        name = fast_algorithm(best["steps"])
        fewer = f"; {name} does fewer multiplications than GFLOP/s counts" if name else ""
        facts.append(("peak", f"{best['peak_fraction']:.1%} of the measured one{fewer}"))
    for name, peer in sorted(result["peers"].items()):
        ratio = best["gflops"] / peer["gflops"]
        facts.append((name, f"{peer['gflops']:.1f} GFLOP/s, ours is {ratio:.2f}x"))
    if proof is not None:
        speed = "" if proof["gflops"] is None else f", {proof['gflops']:.1f} GFLOP/s"
        told = f"proven{speed}" if proof["sha256"] and not proof["failure"] else "not proven"
        facts.append(("script", f"{told} ({proof['mlir']})"))
    return facts
