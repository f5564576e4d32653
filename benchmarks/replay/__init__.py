"""Recorded spaces, and samplers compared on them without timing anything."""
