"""What Python imports when it starts below a test, unless that is brief (`tests.brief`)."""

import gc

SELDOM = 100_000, 20, 100
"""Objects between two looks at the youngest, and how many of those are between two at others."""

gc.set_threshold(*SELDOM)
