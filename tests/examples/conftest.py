"""Searches of examples are measured briefly."""

from tests.short_timings import peaks

measured_briefly = peaks.measured_briefly
