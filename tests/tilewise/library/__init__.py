"""Libraries of kernels."""
