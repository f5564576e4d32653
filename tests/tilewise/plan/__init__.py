"""`tilewise plan`."""
