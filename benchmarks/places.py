"""Where benchmarks find problems and recorded spaces, and where they store results."""

from pathlib import Path

from tilewise.kernels.target import Target

DATA = Path(__file__).parent / "data"
RESULTS = DATA / "results"
SPACES = DATA / "spaces"
SUITES = DATA / "suites"
DOCS = Path(__file__).parent.parent / "docs"


def results_of(target: Target) -> Path:
    """Return the folder of results of a processor, such as `results/znver5`.

    Processors of one name with and without AMX have a folder each: they differ most.
    """
    amx = "-amx" if "amx-tile" in target.features else ""
    return RESULTS / f"{target.cpu}{amx}"
