"""How often somebody may ask: a bucket that fills as time goes by.

The bucket holds a minute's requests, so that a build may ask for all that it needs at once.
"""

import time
from collections import OrderedDict

MINUTE_S = 60.0
MOST_BUCKETS = 10_000


class RequestLimit:
    """So many requests a minute, for each of those who ask; in the memory of this process.

    Args:
        per_minute: for each; 0 for as many as they like.
    """

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, who: str) -> float:
        """Take one request from a bucket: 0 if it was there, else seconds until one will be."""
        if not self._per_minute:
            return 0.0
        now_s = time.monotonic()
        rate = self._per_minute / MINUTE_S
        left, since_s = self._buckets.pop(who, (float(self._per_minute), now_s))
        left = min(float(self._per_minute), left + (now_s - since_s) * rate)
        wait_s = 0.0 if left >= 1.0 else (1.0 - left) / rate
        self._buckets[who] = (left - 1.0 if not wait_s else left), now_s
        while len(self._buckets) > MOST_BUCKETS:
            self._buckets.popitem(last=False)
        return wait_s
