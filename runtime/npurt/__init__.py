"""npurt: loads an npuc blob, relocates it and runs it on a simulated NPU. Needs NumPy alone.

image = npurt.load("model.npu")
outputs = npurt.Device(image).run("main", {"x": x})               # the device's own bits
outputs = npurt.open_device(image, "fast").run("main", {"x": x})  # float32 BLAS, within a tolerance
"""

from npurt.device import Device
from npurt.errors import BlobError, BytecodeError, DeadlockError, DeviceError, NpurtError, TargetError
from npurt.fast import FastDevice, open_device
from npurt.image import Image
from npurt.loader import load, load_bytes

__version__ = "0.1.0"

__all__ = [
    "BlobError",
    "BytecodeError",
    "DeadlockError",
    "Device",
    "DeviceError",
    "FastDevice",
    "Image",
    "NpurtError",
    "TargetError",
    "load",
    "load_bytes",
    "open_device",
]
