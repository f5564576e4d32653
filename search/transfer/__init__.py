"""Corrected model weights and starting points from earlier searches of near problems."""
