"""A planned network as a drawing: layers, copies and other ops as boxes, tensors as edges."""
