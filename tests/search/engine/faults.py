"""A search whose first trials are the ones that a faulty child fails."""

from dataclasses import replace

import pytest

from tilewise.kernels.problem import Problem
from tilewise.kernels.target import detect
from tilewise.search.space.points import TilePoint
from tilewise.search.space.space import Space


def propose_rows(monkeypatch: pytest.MonkeyPatch, problem: Problem, rows: list[int]) -> None:
    """Have every search of `problem` begin with tiles of these rows and one vector."""
    tiles = tuple(TilePoint(r, 1) for r in rows)
    known = Space(problem, detect()).parameters
    parameters = tuple(replace(p, values=tiles) if p.name == "tile" else p for p in known)
    monkeypatch.setattr(Space, "parameters", parameters)
    points = [{p.name: p.values[0] for p in parameters} | {"tile": tile} for tile in tiles]
    monkeypatch.setattr("tilewise.search.engine.study.PRIOR_OF", {})  # all of them first
    monkeypatch.setattr("tilewise.search.engine.study.prior_points", lambda *_: points)
