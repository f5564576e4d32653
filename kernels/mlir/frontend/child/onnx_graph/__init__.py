"""What becomes of an ONNX graph before IREE's importer sees it."""
