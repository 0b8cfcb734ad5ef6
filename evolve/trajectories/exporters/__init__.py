"""Rows of views in the formats of trainers, and the folders that hold them."""
