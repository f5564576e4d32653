"""The lock file: which text of which schedule each file of a folder is.

It is TOML, one block per file, sorted, without anything volatile, so that a diff shows what a newer
schedule changed and nothing else.
"""

import json
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, fields
from math import inf
from pathlib import PurePath

from tilewise.errors import BadInputError
from tilewise.fetch.folder import DIGEST, sha256
from tilewise.kernels.errors import TargetError
from tilewise.kernels.problem import Problem, ProblemRange, stem
from tilewise.kernels.quoting import quoted
from tilewise.kernels.system.typed_json import from_json
from tilewise.kernels.target import parse_target

VERSION = 1
KERNEL, RANGE = "kernel", "range"
FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+=-]{0,254}")
ENDS = 2  # of an interval
KINDS = ("cpu", "air", KERNEL, RANGE)
ENDINGS = {KERNEL: "py", RANGE: "json"}
HEAD = """\
# Written by `tilewise fetch`; commit it. `tilewise fetch --frozen` holds a build to it.
"""


def file_name(problem: Problem | ProblemRange, kind: str) -> str:
    """Return a file's name, such as `matmul_m64_n48_k32_f32.cpu.mlir`, or `.py` for a kernel."""
    return f"{stem(problem)}.{ENDINGS.get(kind, f'{kind}.mlir')}"


@dataclass(frozen=True)
class LockEntry:
    """One file.

    Attributes:
        kind: the flavor of a script, `kernel`, or `range`: the variants as JSON.
        schedule: hash of the schedule that the text spells, or of the variants of a range.
        sha256: of the text in UTF-8.
        etag: the service's tag of the text, where that is not its hash.
        match: how near the schedule is to the target, where not `exact`.
        quality: of the speed, where not `good`.
    """

    path: str
    problem: str
    key: str
    kind: str
    target: str
    toolchain: str
    schedule: str
    sha256: str
    gflops: float | None = None
    interval: tuple[float, ...] | None = None
    etag: str | None = None
    match: str | None = None
    quality: str | None = None

    @property
    def tag(self) -> str:
        """The service's tag of the text."""
        return self.etag or self.sha256

    def is_of(self, problem: Problem | ProblemRange, kind: str) -> bool:
        """Return whether it is the file of a problem's script or kernel."""
        return (self.key, self.kind) == (problem.key, kind)

    def why_not_for(self, target: str) -> str | None:
        """Return why the file does not suit a target; None if it does.

        Lock files before 0.2 name no features and stand for the whole processor.
        """
        if not target or target == self.target:
            return None
        why = parse_target(self.target).why_not(parse_target(target))
        return f"is locked for {self.target}, not for {target}{f' ({why})' if why else ''}"


@dataclass(frozen=True)
class Lock:
    """The files of a folder, by sorted name; `folder` is its last component."""

    entries: dict[str, LockEntry]
    folder: str = ""

    @classmethod
    def of(cls, entries: Iterable[LockEntry], folder: str = "") -> "Lock":
        """Return the lock of some files."""
        found = {entry.path: entry for entry in entries}
        return cls({path: found[path] for path in sorted(found)}, folder)

    @classmethod
    def parse(cls, text: str, name: str) -> "Lock":
        """Parse the text of the lock file `name`; raise BadInputError if it is none."""
        try:
            found = tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            hint = "; it holds a merge's marks" if "<<<<<<<" in text else ""
            raise BadInputError(f"{name} is not a lock file: {error}{hint}") from error
        version = found.get("version")
        if type(version) is not int or not 1 <= version <= VERSION:
            raise BadInputError(
                f"{name}: version={version!r} is not one that this tilewise reads, {VERSION}; "
                "install a newer one, or delete the file and fetch again"
            )
        try:
            entries = [from_json(LockEntry, one, tolerant=True) for one in found.get("file", [])]
        except (ValueError, TypeError) as error:
            raise BadInputError(f"{name} is not a lock file: {error}") from error
        paths = set[str]()
        for entry in entries:
            fault = _fault(entry)
            if entry.path in paths:
                fault = f"{entry.path} has two blocks; delete the one that a merge left"
            if fault is not None:
                raise BadInputError(f"{name} is not a lock file: {fault}")
            paths.add(entry.path)
        folder = found.get("folder", "")
        if not isinstance(folder, str):
            raise BadInputError(f"{name} is not a lock file: folder={folder!r} is no name")
        return cls.of(entries, folder)

    def render(self) -> str:
        """Return the text of the lock file."""
        facts = f"version = {VERSION}\n"
        if self.folder:
            facts += f"folder = {_value(self.folder)}\n"
        blocks = [HEAD, facts, *map(_block, self.entries.values())]
        return "\n".join(blocks)


def _fault(entry: LockEntry) -> str | None:
    """Return what is wrong with an entry; None if nothing is."""
    if PurePath(entry.path).name != entry.path or not FILE_NAME.fullmatch(entry.path):
        return f"path {quoted(entry.path)} is no file's name"
    for name in ("sha256", "key"):
        value = getattr(entry, name)
        if not DIGEST.fullmatch(value):
            return f"{entry.path}: {name}={quoted(value)} is no SHA-256 of 64 hex digits"
    try:
        parse_target(entry.target)
    except TargetError as error:
        return f"{entry.path}: {error}"
    if entry.kind not in KINDS:
        return f"{entry.path}: kind={quoted(entry.kind)} is not one of {', '.join(KINDS)}"
    if sha256(entry.problem) != entry.key:
        return f"{entry.path}: key={quoted(entry.key)} is not that of {quoted(entry.problem)}"
    for name in ("target", "toolchain", "schedule", "etag", "match", "quality"):
        if not (getattr(entry, name) or "").isprintable():
            return f"{entry.path}: {name} has characters that cannot be printed"
    numbers = [one for one in (entry.gflops, *(entry.interval or ())) if one is not None]
    if not all(0 <= one < inf for one in numbers) or len(entry.interval or (0.0, 0.0)) != ENDS:
        return f"{entry.path}: gflops and interval are no speed"
    return None


def _block(entry: LockEntry) -> str:
    lines = ["[[file]]"]
    for field in fields(LockEntry):
        value = getattr(entry, field.name)
        if value is not None:
            lines.append(f"{field.name} = {_value(value)}")
    return "\n".join(lines) + "\n"


def _value(value: str | float | tuple[float, ...]) -> str:
    """Format a value as TOML, which equals JSON for these types."""
    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)
