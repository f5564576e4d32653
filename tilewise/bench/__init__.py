"""A suite of problems and other libraries: read, measure, summarise."""

from tilewise.bench.report import Compared, PeerSpeed, SuiteTable
from tilewise.bench.suite import Suite, SuiteEntry, SuiteError, read_suite

__all__ = ["Compared", "SuiteEntry", "PeerSpeed", "SuiteTable", "Suite", "SuiteError", "read_suite"]
