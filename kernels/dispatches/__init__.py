"""Tuned kernels inside IREE: `library_text` makes a file that `iree-compile` takes by one flag."""
