"""Results as commands print them, as text or JSON."""

import sys

from tilewise.cli.files import json_text
from tilewise.formats.trials import Json, steps_text
from tilewise.kernels.problem import parse_any
from tilewise.kernels.quoting import duration
from tilewise.kernels.schedule import fast_algorithm
from tilewise.kernels.target import parse_target
from tilewise.kernels.target.machine import facts_text

LABEL = 10


def print_result(result: Json, *, as_json: bool, with_machine: bool = False) -> None:
    """Print the contract's result object."""
    text = json_text(result) if as_json else result_text(result)
    if with_machine and not as_json:
        text += machine_text(result)
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
    lines = [
        ("problem", found["problem"]),
        *_range_lines(found),
        ("target", f"{found['target']}{_target_note(found)}"),
        ("toolchain", found["toolchain"] + ("  (stale)" if found.get("stale") else "")),
        *([("origin", found["origin"])] if found.get("origin") else []),
        ("schedule", best["hash"]),
        *(("", line) for line in steps_text(best["steps"]).splitlines()),
        *_speed_lines(best),
        *_quality_lines(best),
        *_measured_lines(found),
        *_accuracy_lines(found),
        *_scratch_lines(best),
        *_peer_lines(found),
        ("script", _proof_line(found)),
        *_reason_lines(found),
        ("trials", _trials_line(found)),
        *_previous_lines(found),
    ]  # fmt: skip
    return "".join(f"{label:<{LABEL}}{text}\n" for label, text in lines)


def _range_lines(found: Json) -> list[tuple[str, str]]:
    """Return the range whose variant is the answer, if one is."""
    name = (found.get("match") or {}).get("range")
    return [("range", f"{name}: its variant for this size")] if name else []


def _speed_lines(best: Json) -> list[tuple[str, str]]:
    if best["interval"] is None:  # of a range
        how = "measured" if best["grade"] == "measured" else "estimated between samples"
        return [("speed", f"{best['gflops']:.1f} GFLOP/s, {how}; {duration(best['time_us'])}")]
    low, high = best["interval"]
    peak = best["gflops"] / best["peak_fraction"]
    return [
        ("speed", f"{best['gflops']:.1f} GFLOP/s, 95% interval {low:.1f} to {high:.1f}; "
                  f"{duration(best['time_us'])}"),
        ("peak", f"{best['peak_fraction']:.1%} of the {peak:.1f}"
                 f" GFLOP/s measured in the same run{_fewer_text(best)}"),
    ]  # fmt: skip


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
    return "".join(f"{label:<{LABEL}}{text}\n" for label, text in lines)


def machine_text(found: Json) -> str:
    """Format the machine that timed a result; empty if unknown."""
    known = found.get("machine")
    text = f"{known['host']}: {facts_text(known)}" if known else ""
    return f"{'machine':<{LABEL}}{text}\n" if text else ""


def _target_note(found: Json) -> str:
    """Return why a result is of another target, where their features differ."""
    reason = (found.get("match") or {}).get("reason")
    return f"  ({reason})" if reason else ""


def _fewer_text(best: Json) -> str:
    """Explain a share of the peak of a fast algorithm, which may exceed it."""
    name = fast_algorithm(best["steps"])
    return f"; {name} does fewer multiplications than GFLOP/s counts" if name else ""


def _scratch_lines(best: Json) -> list[tuple[str, str]]:
    """Return memory for panels, and for sums apart from C, if recorded."""
    sizes = dict(best.get("scratch_bytes") or {})
    sums = sizes.pop("C", 0)
    parts = [f"{name} {size / 2**10:.0f} KiB" for name, size in sizes.items()]
    more = f"; sums {sums / 2**10:.0f} KiB" if sums else ""
    return [("scratch", f"panels of {', of '.join(parts)}{more}")] if parts else []


def _quality_lines(best: Json) -> list[tuple[str, str]]:
    if best.get("quality") != "noisy":
        return []
    return [("quality", "noisy machine: measure again with --again")]


def _previous_lines(found: Json) -> list[tuple[str, str]]:
    """Return what the last measurement of the same work changed, if there was another."""
    past = found.get("previous")
    if not past:
        return []
    low, high = past["interval"]
    noisy = " (noisy)" if past["quality"] == "noisy" else ""
    speed = f"{past['gflops']:.1f} GFLOP/s [{low:.1f}, {high:.1f}]{noisy}, schedule {past['hash']}"
    if past["state"] == "superseded":
        text = f"replaced {speed}, of job {past['job']}"
    else:
        text = f"job {past['job']} measured {speed}: not kept"
    return [("history", text)]


def _measured_lines(found: Json) -> list[tuple[str, str]]:
    """Return how the speed was measured, if recorded."""
    measured = found["best"].get("measured")
    if not measured:
        return []
    rounds = measured.get("disturbed", 0)
    caches = f"cold caches ({measured['cold']})" if measured["cold"] else "hot caches"
    return [
        ("measured", f"{caches}, {measured['samples']} samples over {measured['placements']} "
                     f"placements of the buffers; {measured['rejected']} of all finalists "
                     "preempted"
                     f"{f'; discarded {rounds} slow rounds' if rounds else ''}"),
    ]  # fmt: skip


def _accuracy_lines(found: Json) -> list[tuple[str, str]]:
    """Return the rms errors of a method that is not direct, relative to the direct one."""
    errors = (found["best"].get("measured") or {}).get("accuracy")
    if not errors:
        return []
    shown = ", ".join(f"{times:.2f} ({kind})" for kind, times in errors.items())
    return [("accuracy", f"rms error {shown} times the direct method's")]


def _peer_lines(found: Json) -> list[tuple[str, str]]:
    return [
        (name, f"{peer['gflops']:.1f} GFLOP/s in the same rounds; "
               f"ours is {found['best']['gflops'] / peer['gflops']:.2f}x")
        for name, peer in found["peers"].items()
    ]  # fmt: skip


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


def _reason_lines(found: Json) -> list[tuple[str, str]]:
    """Return why the script is of another schedule than the kernel."""
    proof = found["proof"]
    if proof is None or proof["failure"] or proof["hash"] == found["best"]["hash"]:
        return []
    reason = proof.get("reason")
    if reason:
        first = reason.partition("\n")[0].removeprefix(f"{found['problem']}: ")
        return [("", f"the best schedule {found['best']['hash']} has no script: {first}")]
    return [("", "it is the fastest script that was proven")]


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
