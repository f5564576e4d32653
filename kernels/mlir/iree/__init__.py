"""IREE as a compiler and a runtime: from a module's text to code that runs on arrays."""
