"""The macro-kernel: the loop nest around a micro-kernel, printed as source, and its sizes."""
