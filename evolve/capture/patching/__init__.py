"""Winners in the place of a script's modules and functions: guards, checks, fallbacks."""
