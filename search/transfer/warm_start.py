"""What a search begins with: a model corrected by earlier searches, and points to start from."""

from tilewise.search.model.analytical import Model
from tilewise.search.space.points import Point
from tilewise.search.store import TrialStore
from tilewise.search.transfer.calibration import calibrate
from tilewise.search.transfer.nearness import near_searches
from tilewise.search.transfer.starting_points import starting_points


def warmed(model: Model, store: TrialStore) -> tuple[Model, list[Point]]:
    """The model with the weights that a store speaks for, and the points to start from."""
    searches = near_searches(model.space, store)
    corrected = Model(model.space, calibrate(model, searches))
    return corrected, starting_points(corrected, searches)
