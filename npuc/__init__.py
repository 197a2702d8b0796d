"""npuc: compiles ONNX models to static NPU programs."""

__version__ = "0.1.0"
