"""Text of the transform dialect that all flavors share."""
