"""IREE as a compiler and a runtime: a module's text in, code out, run on this machine's buffers.

Face: `compile_module`, `compiled_text`, `open_device`, `LoadedModule`, `module_text`.
"""
