"""What a worker elsewhere and the service say to each other about one run, as JSON.

Face: `orders`, `trials`, `ends`.
"""
