"""A network as a whole: for each layer an algorithm, for each tensor a layout, at the least time.

Face: `Layout`, `Costs`, `planned`, `Plan`; the room `costing` takes the times.
`choose` and `minimise` know nothing of layers.
"""
