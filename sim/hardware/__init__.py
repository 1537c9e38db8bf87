"""Hardware profiles: every number of a device with its source."""

from sim.hardware.profile import HardwareError, HardwareProfile, hardware_names, load_hardware

__all__ = ["HardwareError", "HardwareProfile", "hardware_names", "load_hardware"]
