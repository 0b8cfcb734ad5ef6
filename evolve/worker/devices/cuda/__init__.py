"""A GPU of NVIDIA's as a device."""
