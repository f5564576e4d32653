"""A planned network compiled: loaded here, or as a folder that runs without Tilewise."""
