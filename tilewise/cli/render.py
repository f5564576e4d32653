"""Results as commands print them, as text or JSON."""

import sys
from collections.abc import Iterable

from tilewise.cli.files import json_text
from tilewise.formats.trials import steps_text
from tilewise.kernels.problem import parse_any
from tilewise.kernels.quoting import columns, duration
from tilewise.kernels.schedule import fast_algorithm
from tilewise.kernels.target import parse_target
from tilewise.kernels.target.machine import facts_text
from tilewise.schema.base import Json
from tilewise.search.ranges.result import size_text

LABEL = 10
NOISY = "noisy machine: measure again with --again"


def print_result(result: Json, *, as_json: bool, with_machine: bool = False) -> None:
    """Print the object of a problem or a range."""
    if as_json:
        text = json_text(result)
    elif "variants" in result:
        text = range_text(result)
    else:
        text = result_text(result) + (machine_text(result) if with_machine else "")
    sys.stdout.write(text)


def print_mapping(mapping: Json, *, as_json: bool) -> None:
    """Print facts by name."""
    sys.stdout.write(json_text(mapping) if as_json else mapping_text(mapping))


def named(problem: str, **parts: str) -> str:
    """Format texts of a problem as a JSON object."""
    found = {"problem": parse_any(problem).canonical, **parts}
    return json_text(found)


def result_text(found: Json) -> str:
    """Format the contract's result object, a line per fact."""
    best = found["best"]
    speed, peak = _speed(best)
    match = found.get("match") or {}
    of_range, reason = match.get("range"), match.get("reason")
    return listed([
        ("problem", found["problem"]),
        ("range", f"{of_range}: its variant for this size" if of_range else ""),
        ("target", found["target"] + (f"  ({reason})" if reason else "")),
        ("toolchain", found["toolchain"] + ("  (stale)" if found.get("stale") else "")),
        ("origin", found.get("origin")),
        ("schedule", best["hash"]),
        *(("", line) for line in steps_text(best["steps"]).splitlines()),
        ("speed", speed),
        ("peak", peak),
        ("quality", NOISY if best.get("quality") == "noisy" else ""),
        ("measured", _measured(best.get("measured") or {})),
        ("accuracy", _accuracy(best.get("measured") or {})),
        ("scratch", _scratch(best)),
        *((name, _peer(best, peer)) for name, peer in found["peers"].items()),
        ("script", _proof_line(found)),
        ("", _reason(found)),
        ("trials", _trials_line(found)),
        ("history", _previous(found)),
    ])  # fmt: skip


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
    return listed(lines, max(len(label) + 2 for label, _ in lines))


def listed(lines: Iterable[tuple[str, str | None]], width: int = LABEL) -> str:
    """Format facts with their labels, without those that are empty."""
    return "".join(f"{label:<{width}}{text}".rstrip() + "\n" for label, text in lines if text)


def _speed(best: Json) -> tuple[str, str]:
    """Return the speed and its share of the peak, which is not known of a range."""
    if best["interval"] is None:  # of a range
        how = "measured" if best["grade"] == "measured" else "estimated between samples"
        return f"{best['gflops']:.1f} GFLOP/s, {how}; {duration(best['time_us'])}", ""
    low, high = best["interval"]
    peak = best["gflops"] / best["peak_fraction"]
    fast = fast_algorithm(best["steps"])  # which may exceed the peak
    fewer = f"; {fast} does fewer multiplications than GFLOP/s counts" if fast else ""
    return (
        f"{best['gflops']:.1f} GFLOP/s, 95% interval {low:.1f} to {high:.1f}; "
        f"{duration(best['time_us'])}",
        f"{best['peak_fraction']:.1%} of the {peak:.1f} GFLOP/s measured in the same run{fewer}",
    )


def prediction_text(found: Json) -> str:
    """Format a predicted schedule, a line per fact."""
    best, speed = found["best"], "not known for so many threads"
    if best["interval"] is not None:
        low, high = best["interval"]
        speed = f"{best['gflops']:.1f} GFLOP/s expected, 90% interval {low:.1f} to {high:.1f}"
    lines = [
        ("problem", found["problem"]),
        ("target", found["target"]),
        ("schedule", f"{best['hash']}, predicted: neither timed nor proven"),
        *(("", line) for line in steps_text(best["steps"]).splitlines()),
        ("speed", speed),
    ]
    return listed(lines)


def machine_text(found: Json) -> str:
    """Format the machine that timed a result; empty if unknown."""
    known = found.get("machine")
    return listed([("machine", f"{known['host']}: {facts_text(known)}" if known else "")])


def _scratch(best: Json) -> str:
    """Return memory for panels, and for sums apart from C, if recorded."""
    sizes = dict(best.get("scratch_bytes") or {})
    sums = sizes.pop("C", 0)
    parts = [f"{name} {size / 2**10:.0f} KiB" for name, size in sizes.items()]
    more = f"; sums {sums / 2**10:.0f} KiB" if sums else ""
    return f"panels of {', of '.join(parts)}{more}" if parts else ""


def _previous(found: Json) -> str:
    """Return what the last measurement of the same work changed, if there was another."""
    past = found.get("previous")
    if not past:
        return ""
    low, high = past["interval"]
    noisy = " (noisy)" if past["quality"] == "noisy" else ""
    speed = f"{past['gflops']:.1f} GFLOP/s [{low:.1f}, {high:.1f}]{noisy}, schedule {past['hash']}"
    if past["state"] == "superseded":
        return f"replaced {speed}, of job {past['job']}"
    return f"job {past['job']} measured {speed}: not kept"


def _measured(measured: Json) -> str:
    """Return how the speed was measured, if recorded."""
    if not measured:
        return ""
    rounds = measured.get("disturbed", 0)
    caches = f"cold caches ({measured['cold']})" if measured["cold"] else "hot caches"
    return (
        f"{caches}, {measured['samples']} samples over {measured['placements']} placements of the "
        f"buffers; {measured['rejected']} of all finalists preempted"
        f"{f'; discarded {rounds} slow rounds' if rounds else ''}"
    )


def _accuracy(measured: Json) -> str:
    """Return the rms errors of a method that is not direct, relative to the direct one."""
    errors = measured.get("accuracy") or {}
    shown = ", ".join(f"{times:.2f} ({kind})" for kind, times in errors.items())
    return f"rms error {shown} times the direct method's" if shown else ""


def _peer(best: Json, peer: Json) -> str:
    ratio = best["gflops"] / peer["gflops"]
    return f"{peer['gflops']:.1f} GFLOP/s in the same rounds; ours is {ratio:.2f}x"


def _proof_line(found: Json) -> str:
    """Describe the proof; scripts run on one thread for every target."""
    proof = found["proof"]
    if proof is None:
        return "none stored" if (found.get("match") or {}).get("range") else "none"
    if proof["failure"]:
        return f"not proven, so not served ({proof['failure']}: {proof['message']})"
    other = "" if proof["hash"] == found["best"]["hash"] else f" of schedule {proof['hash']}"
    where = "" if parse_target(found["target"]).threads == 1 else " on one thread"
    by = f", reported by the worker on {proof['by']}" if proof.get("by") else ""
    return (
        f"proven{other}: applied, run, error {proof['max_error']:.2g} within "
        f"{proof['tolerance']:.2g}, {proof['gflops']:.1f} GFLOP/s{where} ({proof['mlir']}{by})"
    )


def _reason(found: Json) -> str:
    """Return why the script is of another schedule than the kernel."""
    proof, best = found["proof"], found["best"]["hash"]
    if proof is None or proof["failure"] or proof["hash"] == best:
        return ""
    if not proof.get("reason"):
        return "it is the fastest script that was proven"
    first = proof["reason"].partition("\n")[0].removeprefix(f"{found['problem']}: ")
    return f"the best schedule {best} has no script: {first}"


def _trials_line(found: Json) -> str:
    counts = found["trials"]
    if (found.get("match") or {}).get("range"):
        return f"{counts['asked']} at each sample of the range, in {found['elapsed_s']:.1f} s"
    text = (
        f"{counts['timed']} timed, {counts['pruned']} pruned, {counts['failed']} failed "
        f"of {counts['asked']} requested, in {found['elapsed_s']:.1f} s"
    )
    if space := found.get("space"):
        text += f"; at most {space['schedules']} schedules"
    return text if found.get("complete", True) else f"{text} (cut short)"


def mapping_text(facts: Json) -> str:
    """Format facts one per line; a list takes further lines."""
    lines = []
    width = max(map(len, facts), default=0) + 2
    for name, value in facts.items():
        values = value if isinstance(value, list) else [value]
        for index, item in enumerate(values or ["none"]):
            label = name.replace("_", " ") if index == 0 else ""
            lines.append(f"{label:<{width}}{_one_line(item)}\n")
    return "".join(lines)


def _one_line(value: object) -> object:
    if isinstance(value, dict):
        return ", ".join(f"{name} {item}" for name, item in value.items())
    return value
