"""A static library of tuned kernels, with its C header and a manifest."""
