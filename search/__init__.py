"""Finding the best schedule: space, prior, sampling, measurement, and the loop over them."""
