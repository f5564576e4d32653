"""The result of `tilewise bench` as text."""

from tilewise.kernels.quoting import columns
from tilewise.schema.base import Json


def table(found: Json) -> str:
    """Format a line per problem, the sums, the machine, and reasons for absences."""
    peers = list(found["machine"]["peers"])
    head = ("problem", "count", "ours", "95% interval", *peers, "ratio")
    rows = [head, *(_cells(row, peers) for row in found["problems"])]
    lines = columns(rows, set(range(1, len(head))))
    lines += ["", *_sums(found), "", *_machine(found["machine"]), *_notes(found["problems"])]
    return "".join(f"{line}\n" for line in lines)


def summary(row: Json) -> str:
    """Describe one problem's result in a few words."""
    if row["ours"] is None:
        return f"left out: {row['reason']}"
    ours = f"{row['ours']['gflops']:.1f} GFLOP/s"
    if row["oracle"] is None:
        return f"{ours}; no peer"
    return f"{ours}; {row['ratio']:.2f}x {row['oracle']['peer']}"


def _cells(row: Json, peers: list[str]) -> list[str]:
    ours = row["ours"]
    interval = "{:.1f}-{:.1f}".format(*ours["interval"]) if ours else ""
    speeds = (_speed(row["peers"].get(name)) for name in peers)
    ratio = "-" if row["ratio"] is None else f"{row['ratio']:.2f}"
    return [row["problem"], str(row["count"]), _speed(ours), interval, *speeds, ratio]


def _speed(speed: Json | None) -> str:
    """Format GFLOP/s; `*` marks a narrower result type, `~` a noisy speed."""
    if speed is None:
        return "-"
    noisy = "~" if speed.get("quality") == "noisy" else ""
    return f"{noisy}{speed['gflops']:.1f}{'*' if 'output' in speed else ''}"


def _sums(found: Json) -> list[str]:
    counted, left_out = found["counted"], found["left_out"]
    whole = f"{counted} problem{'' if counted == 1 else 's'}"
    if left_out:
        whole += f"; {left_out} left out"
    if found["geomean_ratio"] is None:
        return [f"nothing to compare: {whole}"]
    weighted = found["weighted"]
    return [
        f"geometric mean of the ratios to the best peer: {found['geomean_ratio']:.3f} ({whole})",
        f"weighted by time: ours {weighted['ours_gflops']:.1f} GFLOP/s, best peer of each "
        f"{weighted['oracle_gflops']:.1f} GFLOP/s: {weighted['ratio']:.3f}",
    ]


def _machine(machine: Json) -> list[str]:
    peaks = ", ".join(f"{name} {peak:.1f}" for name, peak in machine["peak_gflops"].items())
    return [
        f"{machine['processor']} ({machine['target']}), {machine['memory_gib']} GiB, "
        f"{machine['system']}",
        f"measured: peak GFLOP/s {peaks or 'none'}; memory {machine['bandwidth_gbs']:.1f} GB/s",
        *(f"{name}: {version}" for name, version in machine["peers"].items()),
    ]


def _notes(rows: list[Json]) -> list[str]:
    """Explain marks and absences; equal reasons share a line."""
    lines = []
    if any("output" in peer for row in rows for peer in row["peers"].values()):
        lines.append("* writes a narrower type than the problem's result, and so fewer bytes")
    speeds = [speed for row in rows for speed in (row["ours"], *row["peers"].values()) if speed]
    if any(speed.get("quality") == "noisy" for speed in speeds):
        lines.append("~ noisy machine: the speed and its ratio say little; measure again")
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if row["reason"]:
            reasons.setdefault(f"left out: {row['reason']}", []).append(row["problem"])
        for name, reason in row["absent"].items():
            reasons.setdefault(f"no {name}: {reason}", []).append(row["problem"])
    for reason, problems in reasons.items():
        more = f" and {len(problems) - 1} more" if len(problems) > 1 else ""
        lines.append(f"{reason} ({problems[0]}{more})")
    return ["", *lines] if lines else []
