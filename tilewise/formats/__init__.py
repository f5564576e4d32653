"""Trials in the formats of other tools."""
