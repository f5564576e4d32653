"""Replay a search on recorded trials without timing."""
