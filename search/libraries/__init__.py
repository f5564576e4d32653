"""Libraries for IREE whose kernels were all proven and timed inside IREE."""
