"""Commands that give tuned kernels: alone, and as a library."""
