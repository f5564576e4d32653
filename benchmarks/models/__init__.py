"""Is a whole model faster with tuned kernels than with IREE alone, and than with PyTorch?"""
