"""The loop nest around a micro-kernel, printed as source.

Face: `print_driver`, `driver_sizes`, `panel_bytes`; `parameters` is what a driver takes.
"""
