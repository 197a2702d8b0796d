"""npurt: loads an npuc blob, relocates it and runs it on a simulated NPU. Needs NumPy alone.

image = npurt.load("model.npu")
outputs = npurt.Device(image).run("main", {"x": x})
"""

from npurt.device import Device
from npurt.errors import BlobError, BytecodeError, DeadlockError, DeviceError, NpurtError, TargetError
from npurt.image import Image
from npurt.loader import load, load_bytes

__version__ = "0.1.0"

__all__ = [
    "BlobError",
    "BytecodeError",
    "DeadlockError",
    "Device",
    "DeviceError",
    "Image",
    "NpurtError",
    "TargetError",
    "load",
    "load_bytes",
]
