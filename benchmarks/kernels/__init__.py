"""How fast single kernels and scripts are."""
