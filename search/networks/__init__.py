"""A network as a whole: for each layer an algorithm, for each tensor a layout, at the least time.

Face: `Layout`, `Costs`, `planned`, `Plan`; `choose`, `minimise` know nothing of layers.
"""
