"""A whole network: an algorithm for each layer and a layout for each tensor, at the least time."""
