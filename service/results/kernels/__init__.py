"""The kernel of a stored result, made in a child process and kept: as a module, as an object.

Face: `kernel_module`, `object_document`.
"""
