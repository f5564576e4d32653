"""Patterns of a module's own ops, extracted in a child process (`cut_module`, `Cut`)."""
