"""The micro-kernel of convolutions with few channels in a group: windows that slide over an image.

Face: `kind.Window`.
"""
