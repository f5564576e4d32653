"""The files of a stored schedule, scripts and kernel, as a look-up names them."""

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from sqlalchemy.orm import Session

from service.api.documents import Json
from service.api.requests import FileKind
from service.db import models
from service.results import air_scripts, stored
from service.results.kernel_modules import kernel_source, kernel_tag
from service.results.nearest import Asked

KERNEL: FileKind = "kernel"


@dataclass(frozen=True)
class FilesOf:
    """The files of some schedules.

    Attributes:
        kinds: those that are asked for.
        asked: for which target, and how near an answer has to be.
        air: SHA-256 of the air scripts that are stored, by schedule.
    """

    kinds: Sequence[FileKind]
    asked: Asked
    air: dict[int, str]

    @classmethod
    def look_up(
        cls,
        session: Session,
        rows: Sequence[models.Schedule],
        kinds: Sequence[FileKind],
        asked: Asked,
    ) -> "FilesOf":
        """Fetch what the results of these schedules do not say themselves."""
        air: dict[int, str] = {}
        if air_scripts.FLAVOR in kinds:
            ids = [row.id for row in rows]
            proofs = stored.fastest_proofs(session, ids, air_scripts.FLAVOR)
            air = {row: proof.script.sha256 for row, proof in proofs.items() if proof.script}
        return cls(tuple(dict.fromkeys(kinds)), asked, air)

    def of(self, row: models.Schedule, result: Json) -> dict[FileKind, Json | None]:
        """The files of a schedule by kind; None for one that is not stored, or was not proven.

        Args:
            row: the schedule.
            result: its document, from `results_json`.
        """
        return {kind: self._file(kind, row, result) for kind in self.kinds}

    def _file(self, kind: FileKind, row: models.Schedule, result: Json) -> Json | None:
        tag = self._tag(kind, row, result)
        if tag is None and kind != air_scripts.FLAVOR:
            return None
        query = {"target": self.asked.target}
        if kind != KERNEL:
            query["flavor"] = kind
        if self.asked.match != "exact":
            query["match"] = self.asked.match
        name = "kernel" if kind == KERNEL else "script"
        return {"etag": tag, "path": f"/v1/schedules/{row.problem.key}/{name}?{urlencode(query)}"}

    def _tag(self, kind: FileKind, row: models.Schedule, result: Json) -> str | None:
        if kind == KERNEL:
            return kernel_tag(kernel_source(result, self.asked.target), self.asked.toolchain)
        if kind == air_scripts.FLAVOR:
            return self.air.get(row.id)
        proof = result["proof"]
        if kind != "cpu" or proof is None or proof["failure"] is not None:
            return None
        tag: str | None = proof["sha256"]
        return tag
