"""The prepared form: each task one or few prepared NumPy calls on prepared views, in f32, within a tolerance."""

from npurt.fast.device import FastDevice, open_device
from npurt.fast.link import LinkOptions

__all__ = ["FastDevice", "LinkOptions", "open_device"]
