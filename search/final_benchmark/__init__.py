"""Time the finalists again, and quote the results."""
