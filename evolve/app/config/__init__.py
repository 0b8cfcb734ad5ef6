"""Configuration of a run: the typed schema, where its YAML lies, and how it is composed."""
