"""Times that are taken for a plan: of layers as a network runs them, and of what is no layer.

Face: `Retimed` times layers with displaced weights; `PassTimes` times passes.
"""
