"""Text of the transform dialect that all flavors share.

Face: `Writer`, `MODULE`, the named sequences; `filled` for templates of them.
"""
