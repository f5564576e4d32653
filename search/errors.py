"""The errors of `search`: a class for each one that a caller can act on."""


class SearchError(Exception):
    """Root of the errors that `search` raises."""


class BudgetError(SearchError):
    """An invalid budget, seed or sampler; `field` names it."""

    def __init__(self, message: str, field: str) -> None:
        super().__init__(message)
        self.field = field


class SamplerError(SearchError):
    """A study that our samplers cannot learn from."""


class UsedUpError(SearchError):
    """Every legal schedule of a space has been tried."""


class RunnerError(SearchError):
    """The runner itself could not be started or kept alive."""


class RecordingError(SearchError):
    """A file is no readable recording, or lacks what is requested."""


class ChoiceError(SearchError):
    """A choice of layouts that is impossible, or too wide to be made exactly."""


class NetworkError(SearchError):
    """A network that cannot run as planned; the message names the op and the way out."""


class PredictorError(SearchError):
    """A predictor that cannot be read, or trials that cannot teach one."""


class RangeError(SearchError):
    """A range of sizes that cannot be tuned as a whole; the message says why."""
