"""A whole model in IREE and as a native network: compiled, compared, timed and reported."""
