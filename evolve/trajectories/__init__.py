"""A search as training data: step records, views of them, recipes and rewards."""
