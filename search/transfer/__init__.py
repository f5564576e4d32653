"""What earlier searches of near problems teach: corrected weights and starting points.

Face: `warmed`.
"""
