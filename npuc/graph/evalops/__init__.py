"""Tables of ONNX operators as NumPy functions, by kind."""
