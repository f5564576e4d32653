"""Where benchmarks find problems and recorded spaces, and where they leave results."""

from pathlib import Path

DATA = Path(__file__).parent / "data"
RESULTS = DATA / "results"
SPACES = DATA / "spaces"
SUITES = DATA / "suites"
DOCS = Path(__file__).parent.parent / "docs"
