"""What a reference's outcome is, and how far another may be from it."""
