"""A reference's outcome, and how far another may be from it."""
