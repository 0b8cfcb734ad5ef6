"""From the steps of runs to training rows."""
