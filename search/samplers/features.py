"""Points as a model of their speed sees them, each looked at once."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tilewise.search.model.analytical import Model
from tilewise.search.space.points import Point

Array = NDArray[np.float64]

MOST_POINTS = 4096  # points that are kept; beyond that they are looked at anew


class Features:
    """The encoding of points, and the analytical model's estimate of their time."""

    def __init__(self, model: Model) -> None:
        self._model, self._space = model, model.space
        self._rows: dict[object, int] = {}
        width = sum(len(p.encode(p.values[0])) for p in self._space.parameters)
        self._codes: Array = np.empty((MOST_POINTS, width))
        self._estimates: Array = np.empty(MOST_POINTS)

    def __call__(self, points: Sequence[Point]) -> tuple[Array, Array]:
        """Encodings, a row for each of up to `MOST_POINTS` points, and the logarithms of cycles."""
        if len(self._rows) + len(points) > MOST_POINTS:
            self._rows.clear()
        rows = [self._row(point) for point in points]
        return self._codes[rows], self._estimates[rows]

    def _row(self, point: Point) -> int:
        key = self._space.key(point)
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = len(self._rows)
            self._codes[row] = self._space.encode(point)
            self._estimates[row] = self._model.log_time(point)
        return row
