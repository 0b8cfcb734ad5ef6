"""Confinement of a candidate's process."""
