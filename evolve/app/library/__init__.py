"""The Python interface: `optimize`, `evaluate`, their events and results."""
