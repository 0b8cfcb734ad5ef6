"""Reading whole runs, for training data."""
