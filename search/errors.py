"""The errors of `search`: one root, and a class per thing a caller can act on."""


class SearchError(Exception):
    """Root of every error that `search` raises on purpose."""


class BudgetError(SearchError):
    """A budget, seed or sampler that makes no sense; `field` names it."""

    def __init__(self, message: str, field: str) -> None:
        super().__init__(message)
        self.field = field


class SamplerError(SearchError):
    """A study that a sampler of ours cannot learn from."""


class UsedUpError(SearchError):
    """Every legal schedule of a space has been tried."""


class RunnerError(SearchError):
    """The runner itself (not a candidate) could not be started or kept alive."""


class RecordingError(SearchError):
    """A file is no recording that can be read, or it lacks what is asked of it."""


class ChoiceError(SearchError):
    """A choice of layouts that is too wide to be made exactly, or that does not exist."""


class NetworkError(SearchError):
    """A network that cannot be run as it is planned; the message names the op and the way out."""
