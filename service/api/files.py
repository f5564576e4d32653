"""Many problems looked up at once, with the files of their schedules: scripts and kernels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import urlencode

from sqlalchemy.orm import Session

from tilewise.kernels.problem import Problem, parse_problem
from tilewise.schema.base import Json
from tilewise.search.records import Solved
from tilewise.service.api.documents import results_json
from tilewise.service.api.range_documents import size_json
from tilewise.service.api.requests import FileKind
from tilewise.service.db import models
from tilewise.service.errors import TamperedError
from tilewise.service.results import nearest, predictions, scripts, stored
from tilewise.service.results.kernels import kernel_source, kernel_tag
from tilewise.service.results.stored import Lookup

KERNEL: FileKind = "kernel"


@dataclass(frozen=True)
class FilesOf:
    """The files of some schedules.

    `air` maps each schedule to the SHA-256 of its stored air script.
    """

    kinds: Sequence[FileKind]
    lookup: Lookup
    air: dict[int, str]

    @classmethod
    def look_up(
        cls,
        session: Session,
        rows: Sequence[models.Schedule],
        kinds: Sequence[FileKind],
        lookup: Lookup,
    ) -> "FilesOf":
        """Fetch what the results of these schedules do not say themselves."""
        air: dict[int, str] = {}
        if scripts.FLAVOR in kinds:
            ids = [row.id for row in rows]
            proofs = stored.fastest_proofs(session, ids, scripts.FLAVOR)
            air = {row: proof.script.sha256 for row, proof in proofs.items() if proof.script}
        return cls(tuple(dict.fromkeys(kinds)), lookup, air)

    def of(self, row: models.Schedule, result: Json) -> dict[FileKind, Json | None]:
        """Return the files of a schedule by kind; None if one is not stored or not proven."""
        return {kind: self._file(kind, row, result) for kind in self.kinds}

    def _file(self, kind: FileKind, row: models.Schedule, result: Json) -> Json | None:
        tag = self._tag(kind, row, result)
        if tag is None and kind != scripts.FLAVOR:
            return None
        name = f"{'kernel' if kind == KERNEL else 'script'}?{_query(self.lookup, kind)}"
        return {"etag": tag, "path": f"/v1/schedules/{row.problem.key}/{name}"}

    def _tag(self, kind: FileKind, row: models.Schedule, result: Json) -> str | None:
        if kind == KERNEL:
            return kernel_tag(kernel_source(result, self.lookup.target), self.lookup.toolchain)
        if kind == scripts.FLAVOR:
            return self.air.get(row.id)
        proof = result["proof"]
        is_searched = kind == scripts.searched_flavor(row.target)
        if not is_searched or proof is None or proof["failure"] is not None:
            return None
        tag: str | None = proof["sha256"]
        return tag


@lru_cache(maxsize=64)
def _query(lookup: Lookup, kind: FileKind) -> str:
    query = {"target": lookup.target}
    if kind != KERNEL:
        query["flavor"] = kind
    if lookup.match == "nearest":
        query["match"] = lookup.match
    if lookup.cache is not None:
        query["cache"] = lookup.cache
    return urlencode(query)


DEFAULTS: Json = {"error": None, "unchanged": False, "files": {}, "predicted": None, "job": None}

Known = Mapping[str, Mapping[FileKind, str]]
"""Entity tags of files, by the key of a problem and the kind of the file."""


def look_up(
    session: Session,
    problems: Sequence[Problem],
    lookup: Lookup,
    kinds: Sequence[FileKind] = (),
    known: Known | None = None,
) -> Json:
    """Return the object of `POST /v1/schedules/lookup`, in a handful of queries.

    Results have the order of `problems`. `known` are the entity tags that the client has.
    """
    wanted = [(problem.key, problem.canonical) for problem in problems]
    rows = nearest.find(session, {key for key, _ in wanted}, lookup)
    found = results_json(session, list(rows.values()), lookup.toolchain, lookup.target)
    files = FilesOf.look_up(session, list(rows.values()), kinds, lookup)
    tags = known or {}
    answers = {
        key: _answer(row, found[row.id], files, tags.get(key, {})) for key, row in rows.items()
    }
    nothing = {"schedule": None, "files": dict.fromkeys(kinds)}
    if lookup.match == "range":
        for one in (problem for problem in problems if problem.key not in answers):
            if (of_range := size_json(session, one, lookup)) is not None:
                answers[one.key] = {**nothing, "schedule": of_range}
    defaults = {**DEFAULTS, "target": lookup.target}
    return {
        "target": lookup.target,
        "toolchain": lookup.toolchain,
        "schedules": [
            {"problem": text, "key": key, **defaults, **answers.get(key, nothing)}
            for key, text in wanted
        ],
    }


def unseen(found: Json) -> list[tuple[Json, Problem]]:
    """Return the answers of a look-up for which nothing is stored, each with its problem."""
    known = ("schedule", "error", "unchanged")
    missing = [one for one in found["schedules"] if not any(one[name] for name in known)]
    return [(one, parse_problem(one["problem"])) for one in missing]


def add_predictions(found: Json, near: Sequence[Solved]) -> None:
    """Add predicted schedules to the answers of a look-up of problems that nothing is stored of."""
    missing = unseen(found)
    guesses = predictions.predicted([problem for _, problem in missing], found["target"], near)
    for (answer, _), guess in zip(missing, guesses, strict=True):
        answer["predicted"] = guess


def _answer(
    row: models.Schedule, found: Json | TamperedError, files: FilesOf, known: Mapping[FileKind, str]
) -> Json:
    """A result, or why it is refused; one bad row does not cost the other answers."""
    if isinstance(found, TamperedError):
        error = {"type": found.kind, "detail": str(found)}
        return {"schedule": None, "error": error, "files": dict.fromkeys(files.kinds)}
    made = files.of(row, found)
    if made and all(one and known.get(kind, "") == one["etag"] for kind, one in made.items()):
        return {"schedule": None, "unchanged": True}
    return {"schedule": found, "files": made}
