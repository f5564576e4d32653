"""Which point comes next: samplers by name.

Face: `make_sampler`, `Sampler`, `IsFree`.
"""
