"""A network as a whole: for each layer an algorithm, for each tensor a layout, at the least time.

Face: `Layout`, `planned`, `Plan`; `costing` has the times; `choose`, `minimise` know nothing of layers.
"""
