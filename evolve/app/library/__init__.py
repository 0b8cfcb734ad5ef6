"""What a Python program calls: `optimize`, `evaluate`, their events and results."""
