"""A store of kernels of one schedule, which nobody timed."""

import base64
import functools
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tilewise.backends import choose
from tilewise.errors import MissingError
from tilewise.kernels.native.objects.make import make_object, make_range_object
from tilewise.kernels.problem import Problem, ProblemRange, parse_any
from tilewise.kernels.range_schedule import RangeSchedule
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.target import Target, resolve
from tilewise.linked import verdicts
from tilewise.search.model.initial_candidates import plain_point
from tilewise.search.ranges.result import contains
from tilewise.search.records import TuneRequest
from tilewise.search.space.space import Space


class Stored:
    """A backend whose store has a kernel of each of some problems, or of all."""

    def __init__(self) -> None:
        self.problems: set[str] | None = None
        self.leaves_out = "nothing"
        self.searched: list[str] = []
        self.made: list[str] = []
        self.cold: set[str] = set()
        self.modes: list[str] = []
        self.computes: Callable[[str], str] = lambda problem: problem

    def __enter__(self) -> "Stored":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def look_up(
        self, problems: Sequence[str], target: str, *_: object, cache: str | None
    ) -> list[Any]:
        return [SimpleNamespace(problem=one, result=self._result(one, target, cache))
                for one in problems]  # fmt: skip

    def _containing(self, problem: str) -> str | None:
        ranges = {text: parse_any(text) for text in self.problems or () if ".." in text}
        wanted = parse_any(problem)
        return next((text for text, one in ranges.items() if contains(one, wanted)), None)

    def show(self, problem: str, target: str, cache: str | None, *, match: str) -> Any:
        stored = problem if self.problems is None else self._containing(problem)
        if stored is None or self.leaves_out in problem or cache == "cold":
            raise MissingError(problem)
        facts = {key: [] for key in ("variants", "spans", "toolchain", "stale")}
        return {"problem": stored, "target": target, "cache": "hot", **facts}

    def _result(self, problem: str, target: str, cache: str | None) -> Any:
        mode = "cold" if problem in self.cold else "hot"
        is_known = self.problems is None or problem in self.problems
        of_range = None if is_known else self._containing(problem)
        if not (is_known or of_range) or self.leaves_out in problem or cache not in (None, mode):
            return None
        best = SimpleNamespace(hash=mode, target=target)
        match = SimpleNamespace(kind="range" if of_range else "exact", range=of_range, differs={})
        return SimpleNamespace(target=target, best=best, cache=mode, match=match, toolchain="")

    def tune(self, problem: str, _target: str, request: TuneRequest, *_: object) -> None:
        assert request.cache == "cold", "weights are evicted in a model"
        self.searched.append(problem)
        self.problems.add(problem)

    def object_files(self, problem: str, target: str, cache: str) -> Any:
        self.made.append(problem)
        self.modes.append(cache)
        return _object(self.computes(problem), target, problem)


@functools.cache
def _object(problem: str, target: str, named: str) -> Any:
    wanted, machine = parse_any(problem), resolve(target)
    if isinstance(wanted, ProblemRange):
        schedule = _plain(wanted.at(wanted.sizes[-1]), machine)
        every = RangeSchedule(wanted, (schedule,), (0,) * len(wanted.sizes))
        made = make_range_object(every, machine)
    else:
        made = make_object(wanted, _plain(wanted, machine), machine)
    face = made.interface
    return SimpleNamespace(
        problem=named, target=target, symbol=face.name, scratch_bytes=face.scratch_bytes,
        packed_bytes=face.packed_bytes, parts=face.parts, object_bytes=made.object,
        object=base64.b64encode(made.object),
    )  # fmt: skip


def _plain(problem: Problem, machine: Target) -> Schedule:
    space = Space(problem, machine)
    return space.schedule(plain_point(space))


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache folder with the operators, which take seconds to compile."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("TILEWISE_CACHE_DIR", str(folder))
        yield folder / "linked"


@pytest.fixture
def stored(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Stored:
    """The store that all compilations of a test use; its kernels are taken to be the faster."""
    backend = Stored()
    monkeypatch.setattr(choose, "open_backend", lambda *_: backend)
    monkeypatch.setattr(verdicts, "in_turns", lambda *_, **__: (1e-6, 2e-6))
    (cache / "verdicts.json").unlink(missing_ok=True)
    return backend


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the warnings of the package."""
    named = [one for one in caplog.records if one.name.startswith("tilewise")]
    return [one.getMessage() for one in named if one.levelno >= logging.WARNING]
