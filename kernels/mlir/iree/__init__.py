"""IREE as a compiler and a runtime: a module's text in, code out, run on this machine's buffers."""
