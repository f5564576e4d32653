"""Trials and models in the formats of other tools."""
