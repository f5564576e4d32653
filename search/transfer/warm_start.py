"""What a search begins with: a model corrected by earlier searches, and points to start from."""

from search.model.analytical import Model
from search.space.points import Point
from search.store import TrialStore
from search.transfer.calibration import calibrate
from search.transfer.nearness import near_searches
from search.transfer.starting_points import starting_points


def warmed(model: Model, store: TrialStore) -> tuple[Model, list[Point]]:
    """The model with the weights that a store speaks for, and the points to start from."""
    searches = near_searches(model.space, store)
    corrected = Model(model.space, calibrate(model, searches))
    return corrected, starting_points(corrected, searches)
