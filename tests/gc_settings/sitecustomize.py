"""Settings of each Python that a test starts, unless `tests.short_timings` has them."""

import gc

THRESHOLDS = 100_000, 20, 100
"""Objects between two looks at the youngest, and how many of those are between two at others."""

gc.set_threshold(*THRESHOLDS)
