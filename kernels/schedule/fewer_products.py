"""What the nests of both methods of fewer products share: names of their dims, element types."""

POINT = "point"
"""The dim of products that are independent of each other, outermost."""
TILES = "t"
"""The dim of what the image is cut into: tiles of pixels, or groups of rows."""
ELEMENTS = ("f32", "f64")
"""Floats that are as wide as their sums: transformed operands are of the same type."""
