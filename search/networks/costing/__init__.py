"""What a plan is chosen by: times of layers, of copies between layouts, and of passes.

Face: `Costs`, `Timed`; `Retimed` times layers with displaced weights, `PassTimes` what is no layer.
"""
