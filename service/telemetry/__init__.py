"""What the service tells of itself: metrics, logs and traces.

Face: `Metrics`, `Observed`, `configure_logs`, `start_tracing`.
"""
