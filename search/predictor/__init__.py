"""Predict schedules of problems that no search has seen, from trials of other problems."""
