"""A planned network in this process: kernels, copies and passes in one chain over two arenas."""
