"""GPUs of AMD, by ROCm's torch: untested on hardware."""
