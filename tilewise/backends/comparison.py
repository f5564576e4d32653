"""Compare the best schedules of two stores: databases, or archives of `store export`."""

import re
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from sqlalchemy import select
from sqlalchemy.orm import joinedload

from tilewise.backends.administration import parsed_moment
from tilewise.backends.service_errors import converted_errors, opened_sessions
from tilewise.errors import BadInputError, MissingError, bad_input
from tilewise.kernels.quoting import one_line, without_password
from tilewise.schema.base import Json
from tilewise.search.verdicts import Verdict, verdict_of_speeds
from tilewise.service.archive.container import opened
from tilewise.service.archive.lines import ScheduleLine
from tilewise.service.archive.restore import TargetFeatures, checked_lines, work_of
from tilewise.service.db import checked, models, schema
from tilewise.service.results import integrity
from tilewise.service.results.stored import ResultKey

Work = tuple[str, str, str]
"""A problem, a target and a cache mode."""


@dataclass(frozen=True)
class Speed:
    """The speed of a stored best in GFLOP/s, with its interval."""

    gflops: float
    low: float
    high: float
    toolchain: str
    host: str
    created_at: datetime
    steps: list[Any]

    def to_json(self) -> Json:
        """Return the speed as JSON."""
        place = {"toolchain": self.toolchain, "host": self.host}
        return {"gflops": self.gflops, "interval": [self.low, self.high], **place}


def compare_stores(base: str, new: str, tolerance: float, retime_s: float | None = None) -> Json:
    """Return a verdict for each problem that both stores have on the same target.

    Doubtful pairs are timed again within about `retime_s`, if given. Raises MissingError if the
    stores share no problem.
    """
    old, found = _speeds(base), _speeds(new)
    base, new = without_password(base), without_password(new)
    shared = sorted(old.keys() & found.keys())
    if not shared:
        raise MissingError(
            f"{base} and {new} share no problem on the same target with the same cache mode; "
            "tune the same problems into both"
        )
    rows = [_row(work, old[work], found[work], tolerance) for work in shared]
    if retime_s is not None:
        from tilewise.backends.retiming import retime  # loads compilers

        steps = {at: (old[work].steps, found[work].steps) for at, work in enumerate(shared)}
        retime(rows, steps, tolerance, retime_s)
    counts = Counter(row["verdict"] for row in rows)
    return {
        "base": base,
        "new": new,
        "tolerance": tolerance,
        "counts": {str(one): counts[one] for one in Verdict},
        "only_in_base": len(old) - len(shared),
        "only_in_new": len(found) - len(shared),
        "problems": rows,
    }


def junit(found: Json) -> str:
    """Return a comparison as JUnit XML: a failure is a regression, what is undecided is skipped."""
    rows, counts = found["problems"], found["counts"]
    suite = ElementTree.Element(
        "testsuite", name="tilewise compare", tests=str(len(rows)),
        failures=str(counts["slower"]), errors="0", skipped=str(counts["undecided"]),
    )  # fmt: skip
    properties = ElementTree.SubElement(suite, "properties")
    for name in ("only_in_base", "only_in_new"):
        ElementTree.SubElement(properties, "property", name=name, value=str(found[name]))
    for row in rows:
        kind = f"{row['target']} {row['cache']}"
        case = ElementTree.SubElement(suite, "testcase", classname=kind, name=row["problem"])
        text = f"{row['ratio']:.3f} of the speed of {found['base']}"
        text += ", timed again" if row["timed_again"] else ""
        text = one_line(f"{text}; {row['reason']}" if row["reason"] else text)
        if row["verdict"] == Verdict.SLOWER:
            ElementTree.SubElement(case, "failure", message=text)
        elif row["verdict"] == Verdict.UNDECIDED:
            ElementTree.SubElement(case, "skipped", message=f"undecided: {text}")
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, "unicode", xml_declaration=True) + "\n"


def _row(work: Work, old: Speed, new: Speed, tolerance: float) -> Json:
    found = verdict_of_speeds((old.low, old.high), (new.low, new.high), tolerance)
    found = Verdict.SAME if old == new else found  # one result in both stores
    hosts = f"timed on different machines: {old.host} and {new.host}"
    return {
        **dict(zip(("problem", "target", "cache"), work, strict=True)),
        "verdict": str(found),
        "ratio": new.gflops / old.gflops,
        "base": old.to_json(),
        "new": new.to_json(),
        "timed_again": None,
        "reason": hosts if old.host != new.host else None,
    }


def _speeds(store: str) -> dict[Work, Speed]:
    """Return the newest best of each work in a store, of the results that its name selects."""
    with bad_input("cannot read the store", OSError):
        name, *selecting = [store] if Path(store).is_file() else re.split(r"#(?=\w+=)", store)
    wanted = dict(one.split("=", 1) for one in selecting)
    if unknown := wanted.keys() - {"toolchain", "machine", "before"}:
        raise BadInputError(f"#{min(unknown)}= is none of #toolchain=, #machine= and #before=")
    before = parsed_moment("before", wanted.get("before", "9999-12-31"))
    results = (_of_database if "://" in name else _of_archive)(name, bool(wanted))
    found = {
        work: speed
        for work, speed in sorted(results, key=lambda result: result[1].created_at)
        if wanted.get("toolchain", "") in speed.toolchain
        and wanted.get("machine", speed.host) == speed.host
        and speed.created_at < before
    }
    if wanted and not found:
        raise MissingError(f"no result of {without_password(name)} has {' and '.join(selecting)}")
    return found


def _of_archive(file: str, with_past: bool) -> list[tuple[Work, Speed]]:
    with bad_input("cannot read the archive", OSError):
        if not Path(file).is_file():
            raise BadInputError(f"{file!r} is neither an archive nor the URL of a database")
    found: list[tuple[Work, Speed]] = []
    with converted_errors(), opened(Path(file)) as archive:
        features = TargetFeatures(archive.manifest.format)
        for read in checked_lines(archive):
            features.look_at(read)
            line = features.completed(read)
            is_read = with_past or type(line) is ScheduleLine
            if isinstance(line, ScheduleLine) and is_read and getattr(line, "was_best", True):
                found.append(_speed(work_of(line), line.host, line))
    return found


def _of_database(url: str, with_past: bool) -> list[tuple[Work, Speed]]:
    with converted_errors():
        if schema.is_absent(url):
            raise BadInputError(f"database {url!r} does not exist; give a database with results")
    kinds: list[Any] = [models.Schedule, *([models.PastSchedule] if with_past else [])]
    queries = (select(kind).options(joinedload(kind.machine)) for kind in kinds)
    with opened_sessions(url) as sessions, checked.reading(sessions) as session:
        return [
            _speed(ResultKey.of(row), str(row.machine.host), row)
            for row in chain.from_iterable(map(session.scalars, queries))
            if getattr(row, "was_best", True) and integrity.is_whole(row)
        ]


def _speed(of: ResultKey, host: str, row: Any) -> tuple[Work, Speed]:
    speed = float(row.gflops), float(row.low), float(row.high), of.toolchain, host
    return (of.canonical, of.target, of.cache), Speed(*speed, row.created_at, row.steps)
