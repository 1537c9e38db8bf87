"""Hardware profiles: every number of a device with its source."""

from sim.hardware.profile import Hardware, HardwareError, hardware_names, load_hardware

__all__ = ["Hardware", "HardwareError", "hardware_names", "load_hardware"]
