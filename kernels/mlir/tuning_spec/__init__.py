"""Flavor `iree-spec`: IREE's own code, with the tile sizes that a search has found."""
