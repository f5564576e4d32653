"""Lower a plan to steps over two memories: kernels, copies and passes, with packed weights."""
