"""Schedules for a range of sizes: sampled, timed at every sample, and chosen."""
