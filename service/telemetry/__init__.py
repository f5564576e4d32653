"""What the service reports of itself: metrics, logs and traces."""
