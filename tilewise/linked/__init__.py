"""Kernels of a store or a service as shared libraries of this process, for other frameworks."""
