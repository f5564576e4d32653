"""Objects: kernels as machine code for other programs."""
