"""A planned network as a folder that runs without Tilewise: code, packed weights, a loader."""
