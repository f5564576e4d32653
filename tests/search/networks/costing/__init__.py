"""Times of what a plan is chosen from."""
