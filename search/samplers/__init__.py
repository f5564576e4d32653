"""Which point comes next: Optuna samplers over a space, ours and anybody's.

Face: `SurrogateSampler`, `LocalSampler`, `GridSampler`, `Distinct`, `make_sampler`,
`suggest_point`.
"""
