"""How a run is timed: samples, a control beside it, cold caches.

Face: `measure`, `interleave`, `measure_beside`, `Samples`, `summarise`.
"""
