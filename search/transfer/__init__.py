"""Corrected costs of the model and starting points from earlier searches of near problems."""
