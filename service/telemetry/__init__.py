"""Telemetry of the service: metrics, logs and traces."""
