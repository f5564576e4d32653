"""A report as text for people."""

from collections.abc import Sequence

from tilewise.kernels.durations import duration
from tilewise.model.report import DATA_TILING, DEFAULT, Op, Report


def report_text(report: Report) -> str:
    """The ops, the whole model, what was left to IREE, and the machine."""
    lines = [*_ops(report.ops), "", *_forms(report), "", *_left(report)]
    lines += _machine(report)
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _ops(ops: Sequence[Op]) -> list[str]:
    width = max([len("problem"), *(len(op.problem) for op in ops)])
    lines = [
        f"{'problem':<{width}} {'count':>5} {'replaced':>8} {'default':>10} {'data tiling':>11} "
        f"{'ours':>10} {'ratio':>6}"
    ]
    for op in ops:
        alone = [op.alone_us.get(name) for name in (DEFAULT, DATA_TILING)]
        lines.append(
            f"{op.problem:<{width}} {op.count:>5} {op.replaced:>8} {duration(alone[0]):>10} "
            f"{duration(alone[1]):>11} {duration(op.library_us):>10} {_ratio(op):>6}"
        )
    return [*lines, *_sums(ops, width)]


def _sums(ops: Sequence[Op], width: int) -> list[str]:
    """Return the row of sums, all of which are over the same rows: those that were measured.

    A form that was not measured for each of them has no sum.
    """
    counted = [op for op in ops if op.library_us is not None and op.alone_us]
    if not counted:
        return []
    before = [
        sum(op.count * op.alone_us[name] for op in counted)
        if all(name in op.alone_us for op in counted) else None
        for name in (DEFAULT, DATA_TILING)
    ]  # fmt: skip
    after = sum(op.count * (op.library_us or 0.0) for op in counted)
    known = [sum_ for sum_ in before if sum_ is not None]
    ratio = f"{min(known) / after:.2f}" if known and after else "-"
    named = "all of them, by count" if len(counted) == len(ops) else "measured ones, by count"
    count, replaced = (sum(column) for column in zip(*((op.count, op.replaced) for op in counted),
                                                     strict=True))  # fmt: skip
    return [
        f"{named:<{width}} {count:>5} {replaced:>8} {duration(before[0]):>10} "
        f"{duration(before[1]):>11} {duration(after):>10} {ratio:>6}"
    ]


def _ratio(op: Op) -> str:
    if op.library_us is None or not op.alone_us:
        return "-"
    return f"{min(op.alone_us.values()) / op.library_us:.2f}"


def _forms(report: Report) -> list[str]:
    measured = report.measured
    given = f"{measured.entry}({', '.join(measured.arguments)})"
    lines = [f"{given} -> {', '.join(measured.results)}"]
    for name, form in measured.forms.items():
        times = sorted(form.times)
        lines.append(
            f"  {name:<21} {duration(1e3 * form.time_ms):>10}   ({duration(1e6 * times[0])} to "
            f"{duration(1e6 * times[-1])} in {len(times)} runs)   deviation {form.deviation:.2g}"
            f"{'  WRONG' if name in report.wrong else ''}"
        )
    lines += [f"  {name:<21} {why}" for name, why in report.refused.items()]
    ratios = {name: report.speedup(name) for name in (DEFAULT, DATA_TILING)}
    over = ", ".join(f"{ratio:.2f}x {name}" for name, ratio in ratios.items() if ratio is not None)
    if not any(op.replaced for op in report.ops):
        over = "none is in use, so that all forms are IREE's own"
    tolerance = f"within the tolerance of {report.tolerance:.2g}"
    if report.wrong:
        tolerance = f"BEYOND the tolerance of {report.tolerance:.2g}: {', '.join(report.wrong)}"
    lines.append(f"with tuned kernels: {over}; {tolerance}")
    return lines


def _left(report: Report) -> list[str]:
    lines = [
        f"{op.count - op.replaced} of {op.count} left to IREE: {op.problem}: {op.reason}"
        for op in report.ops
        if op.replaced < op.count
    ]
    lines += [f"no problem: {one.op} at {one.where}: {one.reason}" for one in report.skipped]
    return [*lines, ""] if lines else []


def _machine(report: Report) -> list[str]:
    said = ", ".join(f"{name} {version}" for name, version in report.machine.items())
    return [f"{report.target}, accuracy={report.accuracy}: {said}"]
