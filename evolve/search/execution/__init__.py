"""The pipeline that keeps models and devices busy."""
